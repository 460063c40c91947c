//! The one-shot flag that tells dconf readers to open the database again.
