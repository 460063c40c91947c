//! gvdb: a hash table of values in one file, read in place (the format of dconf databases).
