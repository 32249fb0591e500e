//! The field failures
