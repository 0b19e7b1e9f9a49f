//! Rule.
