//! Forms of a vector besides f32 that matrices ask for: rotated, int8, or both one after the other.
//!
//! Each is made once, by a launch before its first reader (or by a fusion with what wrote the vector),
//! and read by all of them until the vector is changed. Which form a matrix asks for is its format's
//! row in the catalog.

use crate::graph::ValueId;
use crate::plan::{Activations, Options};
use refrain_kernels::{Dtype, Habit, KernelRow, Op, Span, find_form};
use std::collections::BTreeMap;

/// A form of a vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// Each 256 elements are rotated.
    pub rotated: bool,
    /// int8 codes of this kind; `None`: f32.
    pub int8: Option<Int8>,
}

/// [`Habit`] with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Int8 {
    /// [`Habit::Q8_0`].
    Q8_0,
    /// [`Habit::Q8_1`].
    Q8_1,
    /// [`Habit::Q8_K`].
    Q8K,
}

impl Int8 {
    const fn of(habit: Habit) -> Self {
        match habit {
            Habit::Q8_0 => Self::Q8_0,
            Habit::Q8_1 => Self::Q8_1,
            Habit::Q8_K => Self::Q8K,
        }
    }

    /// What the catalog calls it.
    pub const fn habit(self) -> Habit {
        match self {
            Self::Q8_0 => Habit::Q8_0,
            Self::Q8_1 => Habit::Q8_1,
            Self::Q8K => Habit::Q8_K,
        }
    }
}

impl Form {
    /// A vector as it is.
    pub const PLAIN: Self = Self {
        rotated: false,
        int8: None,
    };

    /// The form that `op` on matrices of a type asks for: int8 where the options allow it, the format
    /// has the habit and a kernel takes it.
    pub fn wanted(options: &Options, op: Op, dtype: Option<Dtype>) -> Self {
        let Some(format) = dtype.map(Dtype::format) else {
            return Self::PLAIN;
        };
        let allowed = options.activations == Activations::Int8;
        let habit = format
            .habit
            .filter(|habit| allowed && find_form(op, dtype, Some(*habit), None).is_some());
        Self {
            rotated: format.rotated && op != Op::Embed,
            int8: habit.map(Int8::of),
        }
    }

    /// The form it is made of, the operation that makes it, and what its step and value are called.
    pub const fn made(self) -> Option<(Self, Op, &'static str)> {
        match self {
            Self {
                rotated,
                int8: Some(_),
            } => Some((
                Self {
                    rotated,
                    int8: None,
                },
                Op::Quantise,
                "int8",
            )),
            Self {
                rotated: true,
                int8: None,
            } => Some((Self::PLAIN, Op::Rotate, "rotated")),
            Self::PLAIN => None,
        }
    }

    /// Elements of 4 bytes that hold this form of `len` elements; `None` if the form has no such
    /// length.
    pub fn words(self, len: u32) -> Option<u32> {
        match self.int8 {
            None => Some(len),
            Some(int8) => {
                let bytes = int8.habit().bytes(usize::try_from(len).ok()?).ok()?;
                u32::try_from(bytes.div_ceil(4)).ok()
            }
        }
    }
}

/// The argument that takes the activation of a kernel that reads one, if it has such.
pub(super) fn activation(row: &KernelRow) -> Option<&'static str> {
    let mut reads = row.effects.iter().filter(|effect| effect.access.reads());
    reads
        .find(|effect| matches!(effect.span, Span::Activation(_)))
        .map(|effect| effect.arg)
}

/// Forms that exist, and the values that hold them.
#[derive(Debug, Default, Clone)]
pub(super) struct Forms(BTreeMap<(ValueId, Form), ValueId>);

impl Forms {
    /// The value that holds this form of a value.
    pub fn get(&self, value: ValueId, form: Form) -> Option<ValueId> {
        match form {
            Form::PLAIN => Some(value),
            _ => self.0.get(&(value, form)).copied(),
        }
    }

    /// Notes that `holder` now holds a form of a value.
    pub fn add(&mut self, value: ValueId, form: Form, holder: ValueId) {
        self.0.insert((value, form), holder);
    }

    /// Forgets the forms of a value that was written.
    pub fn forget(&mut self, value: ValueId) {
        self.0.retain(|(of, _), _| *of != value);
    }
}
