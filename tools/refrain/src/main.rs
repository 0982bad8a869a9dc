//! The `refrain` program: parses, runs one command, turns its error into an exit code.
#![forbid(unsafe_code)]

use clap::Parser;
use refrain::{cli::Cli, commands, exit, output};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    output::start_logging(cli.verbose);
    match commands::run(&cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            ExitCode::from(exit::code_of(&error).number())
        }
    }
}
