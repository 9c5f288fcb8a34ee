//! `stanchion man`: writes the manual pages, for packages of this program.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};

use crate::exit::{self, Failure};

/// Write the manual pages.
///
/// One page for the program and one for each command, such as stanchion-run.1. They have the text of --help.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stanchion man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// An existing directory.
    directory: PathBuf,
}

pub(crate) fn man(args: &ManArgs) -> Result<u8, Failure> {
    // The pages name every command, so a reader of `stanchion help` has no need of a page for it.
    let command = crate::Cli::command().disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.directory).map_err(|error| {
        let directory = args.directory.display();
        Failure::new(exit::IO, format_args!("{directory}: {error}"))
    })?;
    Ok(exit::SUCCESS)
}
