//! The product benchmark: pure statistics and judgement, the runner that fills a report, and the
//! forms the report is printed in. Arguments and exit codes are left to `commands::bench`.

pub mod amend;
pub mod args;
pub mod compare;
pub mod facts;
pub mod gate;
pub mod judge;
pub mod order;
pub mod plot;
pub mod report;
pub mod runner;
pub mod stats;
pub mod table;
