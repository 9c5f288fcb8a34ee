//! `stanchion completions`: prints a script with which a shell completes this program's arguments.

use std::io::{self, Write as _};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::exit::{self, Failure};

/// Print a completion script.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stanchion completions bash > ~/.local/share/bash-completion/completions/stanchion
  stanchion completions zsh  > ~/.zfunc/_stanchion
  stanchion completions fish > ~/.config/fish/completions/stanchion.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut crate::Cli::command(),
        "stanchion",
        &mut script,
    );
    io::stdout().write_all(&script)?;
    Ok(exit::SUCCESS)
}
