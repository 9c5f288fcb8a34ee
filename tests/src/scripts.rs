//! The texts of the read-write lock's scripts, assembled as in its crate.
#![expect(missing_docs, reason = "named as the scripts")]

macro_rules! lua {
    ($name:literal) => {
        include_str!(concat!("../../crates/stanchion-rwlock/lua/", $name, ".lua"))
    };
}

macro_rules! in_line {
    ($text:expr) => {
        stanchion_client::in_line!($text, of lua!("line_of_rwlock"))
    };
}

macro_rules! with_dead {
    ($name:literal) => {
        stanchion_client::woven!(
            lua!($name),
            stanchion_client::primitive::LuaPart::new("-- @dead.lua\n", lua!("dead"))
        )
    };
}

pub const READ_ACQUIRE: &str = in_line!(with_dead!("read_acquire"));
pub const READ_REENTER: &str = lua!("read_reenter");
pub const READ_RELEASE: &str = in_line!(with_dead!("read_release"));
pub const READ_RENEW: &str = lua!("renew_read");
pub const WRITE_ACQUIRE: &str = in_line!(stanchion_client::minting!(with_dead!("write_acquire")));
pub const WRITE_REENTER: &str = lua!("write_reenter");
pub const WRITE_RELEASE: &str = in_line!(lua!("write_release"));
pub const DOWNGRADE: &str = in_line!(lua!("downgrade"));
pub const TEND: &str = in_line!(lua!("tend"));
