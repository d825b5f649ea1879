use std::os::unix::fs::symlink;

use super::*;
use crate::{ByteDevice, Device};
use tempfile::TempDir;

const SIZE: u64 = 64 << 10;
const ADDRESS: PciAddress = PciAddress { domain: 0, bus: 1, device: 0, function: 0 };
/// BAR 2, barrier by PMRSTS, half a second at most.
const GOOD: u32 = 2 << 5 | 2 << 10 | 1 << 16;

/// A directory of PCI devices with one NVMe controller of plain files.
struct Fake(TempDir);

impl Fake {
    fn new(cap_high: u32, pmrcap: u32, pmrsts: u32) -> Self {
        let fake = Self(tempfile::tempdir().unwrap());
        fs::create_dir(fake.dir()).unwrap();
        fake.put("class", b"0x010802\n");
        fake.put("config", &[0; 64]);
        let mut registers = vec![0; 16384];
        for (at, value) in [(CAP_HIGH, cap_high), (PMRCAP, pmrcap), (PMRSTS, pmrsts)] {
            registers[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        fake.put("resource0", &registers);
        fake.put("resource2", &vec![0; SIZE as usize]);
        let none = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        fake.put(
            "resource",
            format!(
                "0x00000000fe000000 0x00000000fe003fff 0x0000000000140204\n{none}\
                 0x0000000800000000 {:#018x} 0x000000000014220c\n{none}{none}{none}",
                0x8_0000_0000 + SIZE - 1
            )
            .as_bytes(),
        );
        fake
    }

    fn good() -> Self {
        Self::new(CAP_PMRS, GOOD, 0)
    }

    fn dir(&self) -> PathBuf {
        self.0.path().join("0000:01:00.0")
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir().join(name), bytes).unwrap();
    }

    fn register(&self, at: usize) -> u32 {
        let bytes = fs::read(self.dir().join("resource0")).unwrap();
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    fn set_register(&self, at: usize, value: u32) {
        let file = OpenOptions::new().write(true).open(self.dir().join("resource0")).unwrap();
        file.write_all_at(&value.to_le_bytes(), at as u64).unwrap();
    }

    fn open(&self) -> Result<ByteDevice> {
        let options = ByteOptions::default();
        let opened = open_in(self.0.path(), ADDRESS, options)?;
        Ok(ByteDevice::of(&crate::BytePlace::Pmr(ADDRESS), options, opened))
    }

    #[track_caller]
    fn refused(&self, why: &str) {
        let said = self.open().err().expect("refused").to_string();
        assert!(said.contains(why), "{said}");
        assert!(said.contains("0000:01:00.0"), "{said}");
    }
}

#[test]
fn a_good_region_is_enabled_and_written() {
    for barriers in 1..4 {
        let fake = Fake::new(CAP_PMRS | CAP_CMBS, GOOD & !(15 << 10) | barriers << 10, 0);
        let device = fake.open().unwrap();
        assert_eq!((device.size(), device.promise()), (SIZE, BytePromise::ReadBack));
        assert_eq!(fake.register(PMRCTL), PMRCTL_EN);
        assert_eq!(fs::read(fake.dir().join("config")).unwrap()[4], COMMAND_MEMORY);
        device.write(100, &[7; 1000], true).unwrap();
        device.write(SIZE - 3, &[8; 3], true).unwrap();
        device.flush().unwrap();
        let memory = fs::read(fake.dir().join("resource2")).unwrap();
        assert_eq!(memory[100..1100], [7; 1000]);
        assert_eq!(memory[SIZE as usize - 4..], [0, 8, 8, 8]);
        assert_eq!(device.describe().kind, "PMR of the NVMe controller 0000:01:00.0");
    }
}

/// What went wrong once is reported ever after.
#[test]
fn a_region_that_fails_latches() {
    for status in [1, 2 << 9, PMRSTS_NRDY, GONE] {
        let fake = Fake::good();
        let device = fake.open().unwrap();
        device.write(0, &[1; 64], true).unwrap();
        fake.set_register(PMRSTS, status);
        assert!(device.write(0, &[2; 64], true).is_err());
        fake.set_register(PMRSTS, 0);
        assert!(device.flush().is_err());
        assert!(device.write(0, &[3; 64], false).is_err());
    }
}

#[test]
fn what_the_controller_says_is_checked() {
    Fake::new(0, GOOD, 0).refused("no persistent memory region (CAP.PMRS is 0)");
    Fake::new(CAP_CMBS, GOOD, 0).refused("what is in a CMB is lost with power");
    Fake::new(GONE, GOOD, 0).refused("does not answer");
    Fake::new(CAP_PMRS, GONE, 0).refused("BAR 7");
    Fake::new(CAP_PMRS, 0, 0).refused("BAR 0");
    Fake::new(CAP_PMRS, 2 << 5 | 2 << 8 | 2 << 10, 0).refused("unknown time unit");
    Fake::new(CAP_PMRS, 2 << 5 | 12 << 10, 0).refused("no write barrier");
    Fake::new(CAP_PMRS, GOOD & !(7 << 5) | 4 << 5, 0).refused("resource4");
    for (status, why) in [
        (GONE, "does not answer"),
        (0x80, "PMRSTS.ERR"),
        (PMRSTS_NRDY, "not ready"),
        (1 << 9, "could not be restored"),
        (2 << 9, "read-only"),
        (3 << 9, "unreliable"),
        (5 << 9, "unknown health"),
    ] {
        Fake::new(CAP_PMRS, GOOD, status).refused(why);
    }
}

#[test]
fn the_wait_is_bounded_whatever_is_asked_for() {
    let able = Capability::of(GOOD | 1 << 8 | 255 << 16).unwrap();
    assert_eq!(able.patience, LONGEST);
    assert_eq!(Capability::of(GOOD & 0xffff).unwrap().patience, Duration::from_millis(500));
}

#[test]
fn devices_that_are_not_free_controllers_are_refused() {
    let fake = Fake::good();
    fake.put("class", b"0x030000\n");
    fake.refused("no NVMe controller");
    let fake = Fake::good();
    symlink("../../bus/pci/drivers/nvme", fake.dir().join("driver")).unwrap();
    fake.refused("the driver nvme uses");
    let unbind = format!("(echo 0000:01:00.0 > {}/driver/unbind)", fake.dir().display());
    fake.refused(&unbind);
    let fake = Fake::good();
    fs::remove_dir_all(fake.dir()).unwrap();
    fake.refused("there is no PCI device");
}

#[test]
fn bars_are_held_to_their_files() {
    let fake = Fake::good();
    fake.put("resource2", &[0; 4096]);
    fake.refused("has 4096 bytes, and its BAR 65536");
    let fake = Fake::good();
    fake.put("resource0", &[0; 100]);
    fake.refused("resource0 has 100 bytes");
    for table in ["", "x y z\n", "0x1 0x0 0x200\n", "0x1 0xffffffffffffffff\n", "1 2 3\n", "é"] {
        let fake = Fake::good();
        fake.put("resource", table.as_bytes());
        fake.refused("BAR 0");
    }
    let fake = Fake::good();
    fake.put("config", &[0; 4]);
    fake.refused("config");
    assert_eq!(bar_size("0x1 0xffffffffffffffff 0x200", 0), Some(u64::MAX));
    assert_eq!(bar_size("0x0 0xffffffffffffffff 0x200", 0), None);
}
