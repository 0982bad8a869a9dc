//! The packet processor from outside: real code objects, real rings, every accepted packet and
//! every refusal. The kernels are those of `tests/fixtures/probe.hip`.

#[cfg(test)]
mod aql;
#[cfg(test)]
mod catalog;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod lifecycle;
#[cfg(test)]
mod malformed_aql;
#[cfg(test)]
mod malformed_pm4;
#[cfg(test)]
mod memory_access;
#[cfg(test)]
mod pm4;
#[cfg(test)]
mod random;
