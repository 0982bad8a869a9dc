//! AQL and PM4 as data for gfx10.3, gfx11, gfx11.5 and gfx12.
//!
//! [`tables`] and [`target`] hold the facts; [`aql`] and [`pm4`] write packets from plain data;
//! [`decode`] and [`aql::decode`] read them back by another path; [`state`] models registers,
//! [`lint`] judges by 50 rules, [`dump`] names every word, [`docs`] writes the reference page.
//! No memory is touched and no device is opened here. Facts about hardware are documented ones:
//! nothing here was measured on a card.
#![forbid(unsafe_code)]

pub mod aql;
pub mod decode;
pub mod docs;
pub mod dump;
mod json;
pub mod kd;
pub mod launch;
pub mod lint;
pub mod mutate;
pub mod packet;
pub mod pm4;
pub mod reloc;
pub mod state;
pub mod tables;
pub mod target;

pub use launch::{Before, DispatchDesc, EncodeError, KernelImage};
pub use reloc::{AddressFree, Bindings, Relocation, RelocationKind};
pub use target::{Generation, Gfx};
