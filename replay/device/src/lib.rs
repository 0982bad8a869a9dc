//! HIP and HSA as run-time function tables, and the memory, streams, queues and signals above them.
//!
//! Three layers: [`sys`] declares the tables and C types, `result` invokes the entries and turns
//! statuses into errors, and the rest owns what was created and checks what is handed in. The
//! tables come from the ROCm libraries ([`Runtime::load_rocm`]) or from the software GPU, so the
//! same code drives both. No library is opened unless asked for.
//!
//! Trust boundary: code objects, kernel arguments and packets are programs for the device. This
//! crate checks who owns what, sizes and order of publication; what a program may touch is proved
//! elsewhere (packet linter, software GPU) before it comes here.
//!
//! Left to others: what a plan is, what packets mean, what to do after an error.

mod device;
mod error;
mod executable;
mod graph;
mod load;
mod memory;
mod module;
mod observe;
mod queue;
mod result;
mod signal;
pub mod status;
mod stream;
pub mod sys;

pub use device::{Device, DeviceInfo, SUPPORTED_TARGETS};
pub use error::{Api, Attempt, DeviceError, LoadError, NoDevice};
pub use executable::{Executable, KernelHandle};
pub use graph::{Capture, Graph};
pub use load::{Origin, Runtime};
pub use memory::{Buffer, MemoryKind};
pub use module::{Function, Module};
pub use observe::{CopyDirection, HipCall, Observer, ObserverGuard};
pub use queue::{PACKET_BYTES, Queue};
pub use signal::Signal;
pub use stream::Stream;
