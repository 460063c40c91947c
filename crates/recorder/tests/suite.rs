//! The service with its two capabilities, and users beside it who are not root: real processes, real programs in the kernel.

mod events;
mod hangs;
mod hostile;
mod limits;
mod marks;
mod people;
mod rights;
mod stage;
mod traces;
