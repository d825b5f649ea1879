//! The same programs, where the Runtime is behind shared memory as in another process: headers go
//! to it by messages, recalls come by messages (`docs/design/private-logs.md`, "NICFS's placement").

#[path = "back_end.rs"]
mod back_end;
#[path = "hostile.rs"]
mod hostile;
#[path = "programs.rs"]
mod programs;

use siftfs_holders::world::Setting;

fn setting() -> Setting {
    Setting { served: true, ..Setting::default() }
}
