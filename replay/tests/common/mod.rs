//! Plans of small models and sessions on the software GPU, shared by the tests of this crate.
#![allow(
    clippy::unwrap_used,
    reason = "a failed step of a test is a failed test"
)]
#![allow(dead_code, reason = "each test binary uses its own part")]

use refrain_kernels::Target;
use refrain_planner::ModelSource;
use refrain_planner::machine::Machine;
use refrain_planner::placement::{ExecChoice, GpuLayers};
use refrain_planner::{CheckedPlan, CompileOptions, compile};
use refrain_recorder::{EmbeddedObjects, FileSource};
use refrain_replay::{
    DeviceSpec, OpenedDevice, Retain, Session, SessionOptions, SoftOptions, Transport,
};
use std::path::Path;
use std::sync::Arc;

/// A trained-shape model with random weights, 1.2 MB.
pub const MODEL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/models/nano-qwen3.bf16.gguf"
);

/// A prompt inside the model's vocabulary.
pub const PROMPT: [u32; 4] = [1, 7, 42, 3];

/// The model's plan for a target with a short context.
pub fn plan(target: Target, context: u32) -> Arc<CheckedPlan> {
    let file = ModelSource::open(MODEL).unwrap();
    let machine = Machine::load(target.name()).unwrap();
    let options = CompileOptions {
        context: Some(context),
        ..CompileOptions::default()
    };
    Arc::new(compile(&file, &machine, &options).unwrap())
}

/// A trained model, 4.2 MB, whose matrices are large enough to be divided.
pub const TRAINED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../golden/models/austen-qwen3-4m.q8_0.gguf"
);

/// A plan of any model with so many layers on the GPU.
pub fn placed(model: &str, target: Target, gpu_layers: u32, exec: ExecChoice) -> Arc<CheckedPlan> {
    let file = ModelSource::open(model).unwrap();
    let machine = Machine::load(target.name()).unwrap();
    let options = CompileOptions {
        context: Some(64),
        gpu_layers: GpuLayers::Last(gpu_layers),
        exec,
        ..CompileOptions::default()
    };
    Arc::new(compile(&file, &machine, &options).unwrap())
}

/// The model's bytes.
pub fn source() -> FileSource {
    FileSource::open(Path::new(MODEL)).unwrap()
}

/// An open software GPU.
pub fn device(target: Target) -> OpenedDevice {
    OpenedDevice::open(DeviceSpec::Soft(target), SoftOptions::default()).unwrap()
}

/// A session that must be retained.
pub fn session(plan: &Arc<CheckedPlan>, transport: Transport, in_flight: u32) -> Session {
    let target = plan.kernels[0].target;
    let options = SessionOptions {
        retain: Retain::Whole,
        transport,
        in_flight,
        ..SessionOptions::default()
    };
    Session::new(device(target), plan, &source(), &EmbeddedObjects, options).unwrap()
}
