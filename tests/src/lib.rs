//! (opening comment comes with the code)
