//! The scripts, and the descriptions of semaphores that call them.

pub mod leased;
pub mod plain;
pub mod pool;

/// The text of a script with the functions for the queue in the place of its line `-- @line.lua`; `$file`: more of them.
macro_rules! queued {
    ($text:expr $(, $file:literal)*) => {
        stanchion_client::woven!(
            $text,
            stanchion_client::primitive::LuaPart::new(
                "-- @line.lua\n",
                stanchion_client::woven!(
                    concat!("-- @line.lua\n", $(include_str!(concat!("../../lua/", $file))),*),
                    stanchion_client::primitive::LuaPart::new(
                        "-- @line.lua\n",
                        stanchion_client::line!(include_str!("../../lua/pool/line_of_permits.lua"))
                    )
                )
            )
        )
    };
}
pub(crate) use queued;

/// Builds a script. In front are functions that it shares with other scripts; `with`: those behind the functions for the queue.
macro_rules! script {
    ($name:literal, $($file:literal)+ => queued $(with $more:literal)*) => {
        stanchion_client::primitive::Script::new(
            $name,
            $crate::scripts::queued!(concat!($(include_str!(concat!("../../lua/", $file))),+) $(, $more)*),
        )
    };
    ($name:literal, $($file:literal)+) => {
        stanchion_client::primitive::Script::new(
            $name,
            concat!($(include_str!(concat!("../../lua/", $file))),+),
        )
    };
}
pub(crate) use script;
