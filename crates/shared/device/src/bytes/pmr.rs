//! The persistent memory region (PMR) of an NVMe controller, without a driver: its registers and
//! its memory are mapped through sysfs. What the controller says is checked before it is used.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use siftfs_base::{Error, Result};

use super::lines;
use super::mapping::{Mapping, Wish};
use super::open::{Opened, Way};
use super::{ByteOptions, BytePromise, MIN_SIZE, PciAddress, RECORD_UNIT};
use crate::file::cannot_open;

/// Where PCI devices are shown.
const DEVICES: &str = "/sys/bus/pci/devices";
/// The class of an NVMe controller.
const NVME: &str = "0x010802";
/// Bytes of registers that are mapped.
const REGISTERS: usize = 4096;

/// The upper half of CAP, and in it: has the controller a PMR, has it a CMB.
const CAP_HIGH: usize = 0x4;
const CAP_PMRS: u32 = 1 << 24;
const CAP_CMBS: u32 = 1 << 25;
const PMRCAP: usize = 0xe00;
const PMRCTL: usize = 0xe04;
const PMRSTS: usize = 0xe08;
const PMRCTL_EN: u32 = 1;
const PMRSTS_NRDY: u32 = 1 << 8;
/// What a device that does not answer reads as.
const GONE: u32 = u32::MAX;

/// The longest that a PMR is waited for, whatever it asks for.
const LONGEST: Duration = Duration::from_secs(120);

/// In config space: the command register, and in it, that memory is decoded.
const COMMAND: u64 = 4;
const COMMAND_MEMORY: u8 = 2;
/// In a BAR's flags: it is memory.
const IORESOURCE_MEM: u64 = 0x200;

fn refused<T>(what: String) -> Result<T> {
    Err(Error::Refused(what))
}

/// What PMRCAP says, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Capability {
    /// Which BAR.
    bar: u32,
    /// How long it may take to be ready.
    patience: Duration,
    /// A read of the region is the write barrier.
    region: bool,
    /// A read of PMRSTS is the write barrier.
    status: bool,
}

impl Capability {
    fn of(pmrcap: u32) -> std::result::Result<Self, String> {
        let bar = pmrcap >> 5 & 7;
        if !(2..=5).contains(&bar) {
            return Err(format!("PMRCAP ({pmrcap:#x}) names BAR {bar}, which can hold no PMR"));
        }
        let unit = match pmrcap >> 8 & 3 {
            0 => Duration::from_millis(500),
            1 => Duration::from_secs(60),
            other => return Err(format!("PMRCAP ({pmrcap:#x}) has the unknown time unit {other}")),
        };
        let barriers = pmrcap >> 10 & 15;
        let (region, status) = (barriers & 1 != 0, barriers & 2 != 0);
        if !region && !status {
            return Err(format!(
                "PMRCAP ({pmrcap:#x}) names no write barrier that is known: nothing says when a \
                 store is persistent"
            ));
        }
        let patience = (unit * (pmrcap >> 16 & 0xff)).max(unit).min(LONGEST);
        Ok(Self { bar, patience, region, status })
    }
}

/// Refuses what PMRSTS says, unless the region is ready and well.
fn well(status: u32) -> std::result::Result<(), &'static str> {
    match status {
        GONE => Err("the controller does not answer"),
        s if s & 0xff != 0 => Err("it reports an error (PMRSTS.ERR)"),
        s if s & PMRSTS_NRDY != 0 => Err("it is not ready (PMRSTS.NRDY)"),
        s => match s >> 9 & 7 {
            0 => Ok(()),
            1 => Err("its contents could not be restored (PMRSTS.HSTS)"),
            2 => Err("it is read-only (PMRSTS.HSTS)"),
            3 => Err("it has become unreliable (PMRSTS.HSTS)"),
            _ => Err("it reports an unknown health (PMRSTS.HSTS)"),
        },
    }
}

/// The registers behind a mapped PMR.
pub(super) struct Pmr {
    registers: Mapping,
    /// The region itself is read back, because a read of PMRSTS is no barrier here.
    region: bool,
}

impl Pmr {
    /// Returns when everything that was stored and fenced before is persistent. PMRSTS is read in
    /// any case: a region that went read-only drops stores without a word.
    pub fn read_back(&self, memory: &Mapping, at: usize) -> io::Result<()> {
        // A store fence lets later loads pass, and the barrier is a load.
        lines::full_fence();
        if self.region {
            memory.touch(at.min(memory.len() - 1));
        }
        well(self.registers.register(PMRSTS)).map_err(io::Error::other)
    }

    /// Enables the region and waits until it is ready; says what it is capable of.
    fn enable(registers: Mapping, shown: PciAddress) -> Result<(Self, Capability)> {
        let fail =
            |what: &str| Error::Refused(format!("the PMR of {shown} cannot be used: {what}"));
        let high = registers.register(CAP_HIGH);
        if high == GONE {
            return Err(fail("the controller does not answer"));
        }
        if high & CAP_PMRS == 0 {
            return Err(without_pmr(shown, high));
        }
        let pmrcap = registers.register(PMRCAP);
        let able = Capability::of(pmrcap).map_err(|what| fail(&what))?;
        let control = registers.register(PMRCTL);
        registers.set_register(PMRCTL, control | PMRCTL_EN);
        let until = Instant::now() + able.patience;
        while registers.register(PMRSTS) & PMRSTS_NRDY != 0 && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        well(registers.register(PMRSTS)).map_err(fail)?;
        Ok((Self { registers, region: able.region && !able.status }, able))
    }
}

fn without_pmr(shown: PciAddress, high: u32) -> Error {
    Error::Refused(match high & CAP_CMBS {
        0 => format!("the NVMe controller {shown} has no persistent memory region (CAP.PMRS is 0)"),
        _ => format!(
            "the NVMe controller {shown} has a controller memory buffer (CMB) and no persistent \
             memory region: what is in a CMB is lost with power. Name another record area"
        ),
    })
}

/// Opens the PMR of the controller at this address.
pub(super) fn open(address: PciAddress, options: ByteOptions) -> Result<Opened> {
    open_in(Path::new(DEVICES), address, options)
}

/// As [`open`], where PCI devices are shown in the directory `devices`.
fn open_in(devices: &Path, address: PciAddress, options: ByteOptions) -> Result<Opened> {
    let dir = devices.join(address.to_string());
    check_device(&dir, address)?;
    let write = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
    decode_memory(&dir)?;
    let path = dir.join("resource0");
    let file = write(&path).map_err(|e| cannot_open(&path, &e))?;
    bar_file(&dir, 0, &file, &path, REGISTERS as u64)?;
    let both = Wish { writable: true, ..Wish::default() };
    let registers = Mapping::of(&file, REGISTERS, both).map_err(|e| cannot_open(&path, &e))?;
    let (pmr, able) = Pmr::enable(registers, address)?;
    let plain = dir.join(format!("resource{}", able.bar));
    let file = write(&plain).map_err(|e| cannot_open(&plain, &e))?;
    let size = bar_file(&dir, able.bar, &file, &plain, MIN_SIZE)?;
    let len = usize::try_from(size - size % RECORD_UNIT)
        .or_else(|_| refused(format!("{} is too large to map", plain.display())))?;
    let wish = Wish { writable: !options.read_only, ..Wish::default() };
    let memory = combining(&dir, able.bar, len, wish)
        .map_or_else(|| Mapping::of(&file, len, wish), Ok)
        .map_err(|e| cannot_open(&plain, &e))?;
    let kind = format!("PMR of the NVMe controller {address}");
    let (promise, way) = (BytePromise::ReadBack, Way::ReadBack(pmr));
    Ok(Opened { file, path: plain, kind, memory, promise, way })
}

/// Refuses what is no NVMe controller, or one that a driver uses.
fn check_device(dir: &Path, address: PciAddress) -> Result<()> {
    let Ok(class) = fs::read_to_string(dir.join("class")) else {
        let dir = dir.display();
        return refused(format!(
            "there is no PCI device {address} ({dir}): lspci -D lists the addresses"
        ));
    };
    let class = class.trim();
    if class != NVME {
        return refused(format!(
            "the PCI device {address} is no NVMe controller: its class is {class:.10}, not {NVME}"
        ));
    }
    let Ok(driver) = fs::read_link(dir.join("driver")) else { return Ok(()) };
    let name = driver.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let dir = dir.display();
    refused(format!(
        "the driver {name} uses the NVMe controller {address}: unbind it first, which takes its \
         disks away (echo {address} > {dir}/driver/unbind)"
    ))
}

/// Lets the device answer to its memory addresses, if it does not.
fn decode_memory(dir: &Path) -> Result<()> {
    let path = dir.join("config");
    let fail = |e: io::Error| cannot_open(&path, &e);
    let config = OpenOptions::new().read(true).write(true).open(&path).map_err(fail)?;
    let mut command = [0; 2];
    config.read_exact_at(&mut command, COMMAND).map_err(fail)?;
    if command[0] & COMMAND_MEMORY == 0 {
        command[0] |= COMMAND_MEMORY;
        config.write_all_at(&command, COMMAND).map_err(fail)?;
    }
    Ok(())
}

/// The size of a BAR, which has at least this many bytes, and whose file has the same size.
fn bar_file(dir: &Path, bar: u32, file: &File, path: &Path, least: u64) -> Result<u64> {
    let shown = path.display();
    let table = dir.join("resource");
    let text = fs::read_to_string(&table).map_err(|e| cannot_open(&table, &e))?;
    let Some(size) = bar_size(&text, bar) else {
        return refused(format!("{} shows no memory for BAR {bar}", table.display()));
    };
    let has = file.metadata().map_err(|e| cannot_open(path, &e))?.len();
    if has != size {
        return refused(format!("{shown} has {has} bytes, and its BAR {size}"));
    }
    if size < least {
        return refused(format!("{shown} has {size} bytes, and {least} are the fewest that do"));
    }
    Ok(size)
}

/// The size of a BAR as a table of resources says it: a line of first byte, last byte and flags
/// for each.
fn bar_size(table: &str, bar: u32) -> Option<u64> {
    let line = table.lines().nth(usize::try_from(bar).ok()?)?;
    let mut numbers = line
        .split_ascii_whitespace()
        .map(|word| word.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()));
    let (start, end, flags) = (numbers.next()??, numbers.next()??, numbers.next()??);
    let len = end.checked_sub(start)?.checked_add(1)?;
    (flags & IORESOURCE_MEM != 0 && start != 0).then_some(len)
}

/// The BAR mapped so that stores are combined to lines on their way, where the kernel offers it.
fn combining(dir: &Path, bar: u32, len: usize, wish: Wish) -> Option<Mapping> {
    let path: PathBuf = dir.join(format!("resource{bar}_wc"));
    let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
    (file.metadata().ok()?.len() == len as u64).then(|| Mapping::of(&file, len, wish).ok())?
}

#[cfg(test)]
#[path = "pmr_tests.rs"]
mod tests;
