use super::*;
use std::sync::Mutex;
use std::time::Instant;

/// A volume that answers when it is let.
struct Waiting(Mutex<()>);

impl FileService for Waiting {
    fn call(&self, _: &Credentials, _: Request) -> VolumeResult<Reply> {
        drop(self.0.lock().unwrap());
        Ok(Reply::Done)
    }
}

#[test]
fn a_volume_that_waits_for_its_storage_is_left_alone_and_asked_again() {
    let volume = Arc::new(Waiting(Mutex::new(())));
    let service: Arc<dyn FileService> = volume.clone();
    let asking = Asking::default();
    let held = volume.0.lock().unwrap();
    for _ in 0..2 {
        assert!(asking.status(&service, || true).is_none());
    }
    drop(held);
    // The first question ends by now, and the next one is answered.
    assert!(matches!(asking.status(&service, || false), Some(Ok(Reply::Done))));
}

#[test]
fn a_volume_that_is_slow_is_waited_for() {
    let volume = Arc::new(Waiting(Mutex::new(())));
    let service: Arc<dyn FileService> = volume.clone();
    let (asking, begun) = (Asking::default(), Instant::now());
    let held = volume.0.lock().unwrap();
    let said = thread::scope(|scope| {
        let said = scope.spawn(|| asking.status(&service, || false));
        thread::sleep(3 * LOOK);
        drop(held);
        said.join().unwrap()
    });
    assert!(matches!(said, Some(Ok(_))) && begun.elapsed() >= 3 * LOOK);
}
