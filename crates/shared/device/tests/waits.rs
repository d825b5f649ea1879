//! A call of a region that the device does not answer is told of by its age, whichever call it is.

use siftfs_base::Result;
use siftfs_device::{
    Counters, Device, FaultDevice, Origin, ReadOp, Region, RegionKind, Stalls, WriteOp,
};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test takes that is not wrong.
const LONG: Duration = Duration::from_secs(20);
const WHO: Origin = Origin::Foreground;

type Call = fn(&Region) -> Result<()>;

#[test]
fn each_call_of_a_region_counts_until_it_is_answered() {
    let calls: [(&str, Call); 8] = [
        ("read", |region| region.read(WHO, 0, &mut [0; 16])),
        ("write", |region| region.write(WHO, 0, &[1; 16])),
        ("write_fua", |region| region.write_fua(WHO, 0, &[1; 16])),
        ("flush", |region| region.flush(WHO)),
        ("flush_bulk", |region| region.flush_bulk(WHO)),
        ("discard", |region| region.discard(WHO, 0, 4096)),
        ("read_batch", |region| {
            region.read_batch(WHO, &mut [ReadOp { offset: 0, buf: &mut [0; 16] }])
        }),
        ("write_batch", |region| region.write_batch(WHO, &[WriteOp { offset: 0, data: &[2; 16] }])),
    ];
    for (name, call) in calls {
        let fault = Arc::new(FaultDevice::new(1 << 20, 1));
        fault.enable_discard();
        let counters = Arc::new(Counters::default());
        let device = fault.clone() as Arc<dyn Device>;
        let region = Region::new(device, RegionKind::Area, 4096, 8192, counters.clone()).unwrap();
        call(&region).map_err(|error| (name, error)).unwrap();
        assert_eq!(counters.waits().longest(), Duration::ZERO, "{name}");
        fault.set_stalls(Some(Stalls { reads: true, ..Stalls::new(2 * LONG, LONG) }));
        let begun = Instant::now();
        let waits = thread::spawn(move || call(&region));
        while counters.waits().longest() < Duration::from_millis(10) {
            assert!(begun.elapsed() < LONG / 2, "{name} is not told of");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(counters.waits().longest() <= begun.elapsed(), "{name}");
        fault.set_stalls(None);
        waits.join().unwrap().unwrap();
        assert_eq!(counters.waits().longest(), Duration::ZERO, "{name}");
    }
}
