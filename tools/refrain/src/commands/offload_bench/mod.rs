//! `refrain offload-bench`: times every form of step of a plan's spilled layers, over the link, on the
//! CPU and split, and says which exec mode and share are best here.
//!
//! The plan is compiled again for each way, its steps are run one at a time with a synchronise on either
//! side, and what the walls say is `refrain_offload::advice`'s. Which rows a run computes where is still
//! decided by its flags: seeds in a profile start a controller, they pin nothing.

mod forms;
mod holders;
mod measure;
mod report;
mod seeds;

use crate::cli::OffloadBenchArgs;
use crate::exit::CliError;
use crate::{input, output};
use anyhow::Context;
use refrain_offload::advice::{Timing, advise};
use refrain_offload::share::Kind;
use refrain_planner::container::CheckedPlan;
use refrain_planner::placement::{ExecChoice, GpuLayers};
use refrain_planner::{CompileOptions, ModelSource, compile};
use refrain_recorder::FileSource;
use refrain_replay::refusal::Code;
use refrain_replay::{OpenedDevice, Refusal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn run(args: &OffloadBenchArgs) -> anyhow::Result<()> {
    let given = input::open_plan(&args.plan)?;
    input::require_weights(&given)?;
    if given.options.gpu_layers >= given.model.geometry.layers {
        let detail = format!("{} keeps all layers on the GPU", args.plan.display());
        return Err(Refusal::new(Code::NothingSpilled, detail).into());
    }
    let model = input::model_of(&given, &args.plan, args.model_file.as_deref())?;
    if let Some(profile) = &args.write {
        super::not_an_input(profile, &[&args.plan, &model])?;
        seeds::check_profile(profile)?;
    }
    let opened = super::open_device(&args.device, None)?;
    if args.write.is_some() && opened.soft.is_some() {
        return Err(CliError::Usage(format!(
            "--write keeps times of a real device and {} is a software GPU; leave it out",
            opened.spec
        ))
        .into());
    }
    let _claim = holders::claim(&opened.spec.to_string(), opened.soft.is_some())?;
    // A sleep between polls is as long as a step.
    opened.device.set_polling(Duration::MAX);
    let bench = Bench {
        given: &given,
        source: input::open_model(&model)?,
        weights: FileSource::open(&model).with_context(|| model.display().to_string())?,
        opened: &opened,
        repeats: args.repeats,
    };
    let (occurrences, timings) = bench.all(&args.shares)?;
    let advice = advise(&occurrences, &timings)?;
    let heading = report::Heading {
        device: opened.spec.to_string(),
        software: opened.soft.is_some(),
        plan: refrain_planner::identity::hex(given.id()),
        repeats: args.repeats,
    };
    output::result(&report::text(args.format, &heading, &advice)?)?;
    if let Some(profile) = &args.write {
        seeds::store(profile, &advice.seeds())?;
        output::note(&format!(
            "{}: {} seeds; they say where a controller starts and pin nothing",
            profile.display(),
            advice.steps.len()
        ));
    }
    Ok(())
}

/// What every way of running the plan has in common.
struct Bench<'a> {
    given: &'a CheckedPlan,
    source: ModelSource,
    weights: FileSource,
    opened: &'a OpenedDevice,
    repeats: u32,
}

impl Bench<'_> {
    /// Times all ways: the forms of the plan, and their walls.
    fn all(&self, shares: &[f32]) -> anyhow::Result<(Vec<forms::Occurrence>, Vec<Timing>)> {
        let on_cpu = self.compile(ExecChoice::Cpu)?;
        let steps = forms::host_steps(&on_cpu);
        let occurrences = forms::occurrences(&steps);
        let mut timings = forms::Timings::default();
        self.barriers(on_cpu, &steps, &mut timings)?;
        for share in shares {
            let split = self.compile(ExecChoice::Passback(Some(*share)))?;
            self.barriers(split, &steps, &mut timings)?;
        }
        let over_link = self.compile(ExecChoice::Pcie)?;
        let reading = forms::reading(&over_link, &steps);
        let wanted: Vec<u32> = reading.iter().flatten().flatten().copied().collect();
        output::note(&format!(
            "{}: {} steps over the link",
            self.opened.spec,
            wanted.len()
        ));
        let walls = self.time(over_link, &wanted)?;
        for (step, readers) in steps.iter().zip(&reading) {
            if let Some(readers) = readers {
                timings.add(step, Kind::Pcie, step.rows, &measure::sums(&walls, readers));
            }
        }
        Ok((occurrences, timings.into_vec()))
    }

    /// Times the barriers of a plan whose host has rows; steps are those of the plan on the CPU, in order.
    fn barriers(
        &self,
        plan: CheckedPlan,
        steps: &[forms::HostForm],
        timings: &mut forms::Timings,
    ) -> anyhow::Result<()> {
        let found = forms::host_steps(&plan);
        let wanted: Vec<u32> = found.iter().map(|step| step.step).collect();
        output::note(&format!(
            "{}: {} steps with the host, exec {}",
            self.opened.spec,
            wanted.len(),
            plan.options
                .exec
                .map_or_else(String::new, |exec| exec.to_string()),
        ));
        let walls = self.time(plan, &wanted)?;
        for step in &found {
            let known = steps.iter().find(|known| known.tensors == step.tensors);
            let (Some(known), Some(walls)) = (known, walls.get(&step.step)) else {
                continue;
            };
            let kind = match step.gpu_rows {
                0 => Kind::Cpu,
                _ => Kind::Split,
            };
            timings.add(known, kind, step.gpu_rows, walls);
        }
        Ok(())
    }

    fn time(&self, plan: CheckedPlan, wanted: &[u32]) -> anyhow::Result<measure::Walls> {
        let plan = Arc::new(plan);
        measure::time(
            &self.opened.device,
            &plan,
            &self.weights,
            wanted,
            self.repeats,
        )
    }

    /// The given plan's model and options with another execution.
    fn compile(&self, exec: ExecChoice) -> anyhow::Result<CheckedPlan> {
        let options = &self.given.options;
        let options = CompileOptions {
            context: Some(options.context),
            kv_dtype: options.kv_dtype,
            bucket: Some(options.bucket),
            ring_entries: options.ring_entries,
            gpu_layers: GpuLayers::Last(options.gpu_layers),
            exec,
            ..Default::default()
        };
        let plan = compile(&self.source, &self.given.machine, &options);
        plan.with_context(|| format!("the plan with exec {exec}"))
    }
}

/// A profile that may be written: shown in errors.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
