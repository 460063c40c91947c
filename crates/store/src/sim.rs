//! A simulated disk that explores every crash state and every failing call.
