//! The PM4 encoder: launches become the words of one indirect buffer.
//!
//! Judged by [`crate::lint`] through another reader; nothing here is read back by itself.

mod ib;
mod policy;
mod writer;

pub use ib::{encode_ib, max_ib_dwords};
pub use policy::{Emission, POLICIES, Policy, PrivMode};
pub use writer::{PacketError, Writer};
