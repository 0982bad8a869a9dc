//! The library facade.
