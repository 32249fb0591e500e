//! The rules
