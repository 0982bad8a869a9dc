//! Why a graph cannot become launches on a target.

use refrain_kernels::{CatalogError, Target};

/// Errors of lowering.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// The catalog has no kernel for an operation on this type and head size.
    #[error(
        "{step}: no kernel for {op} on {wanted} for {target}; there is {exists}: \
         convert the model to a type and shape that exists"
    )]
    NoKernel {
        /// Step that needs it.
        step: String,
        /// Operation.
        op: String,
        /// Element type and head size asked for.
        wanted: String,
        /// Target.
        target: Target,
        /// Specialisations of the operation that exist.
        exists: String,
    },
    /// An operation of a declaration that the table has no row for.
    #[error("{step}: lowering has no row for {op}: declarations and table differ")]
    NoRow {
        /// Step that needs it.
        step: String,
        /// Operation.
        op: String,
    },
    /// A step of the host on a matrix whose activation is not plain f32.
    #[error(
        "{step}: the host multiplies f32 vectors as they are, {dtype} wants this one {form}: \
         use --activations exact, --exec pcie, or weights of another type"
    )]
    HostForm {
        /// Step.
        step: String,
        /// Type of the matrix.
        dtype: refrain_kernels::Dtype,
        /// Form that the matrix asks for.
        form: &'static str,
    },
    /// A fusion that does not exist.
    #[error("there is no fusion {found} to switch off; there are {known}")]
    UnknownFusion {
        /// Asked for.
        found: String,
        /// Names of the table.
        known: String,
    },
    /// The code object of the target lacks a kernel of the catalog.
    #[error(
        "{step}: the {target} code object has no {symbol}: rebuild it with `cargo xtask kernels`"
    )]
    NotInObject {
        /// Step that needs it.
        step: String,
        /// Symbol.
        symbol: &'static str,
        /// Target.
        target: Target,
    },
    /// An argument that the lowering of the operation does not know.
    #[error(
        "{step}: {symbol} takes {arg}, which lowering does not provide: catalog and planner differ"
    )]
    UnknownArgument {
        /// Step.
        step: String,
        /// Kernel.
        symbol: &'static str,
        /// Argument.
        arg: &'static str,
    },
    /// A shape that the kernel does not take.
    #[error("{step}: {source}")]
    Shape {
        /// Step.
        step: String,
        /// The need that is not met.
        source: CatalogError,
    },
    /// A launch that reaches past the end of an activation vector.
    #[error(
        "{step}: reaches byte {end} of {value}, which has {bytes}: the declaration's shapes disagree"
    )]
    Capacity {
        /// Step.
        step: String,
        /// Declared value.
        value: &'static str,
        /// End of the launch's region.
        end: u64,
        /// Bytes of the value.
        bytes: u64,
    },
    /// A size that leaves its type.
    #[error("{what} is larger than this build can plan: use a smaller context or model")]
    TooLarge {
        /// What is too large.
        what: String,
    },
}
