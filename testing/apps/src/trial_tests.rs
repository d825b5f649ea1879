use super::*;

/// Works until told, or gives up at once.
struct Sample {
    gives_up: bool,
}

impl App for Sample {
    fn name(&self) -> &'static str {
        "sample"
    }

    fn prepare(&mut self, _at: &Site) -> Result<()> {
        Ok(())
    }

    fn work(&self, at: &Site) -> Result<()> {
        if self.gives_up {
            return Err(Failed("no more".into()));
        }
        while !at.stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn check(&mut self, _at: &Site) -> Result<()> {
        Ok(())
    }

    fn acknowledged(&self) -> String {
        "nothing".into()
    }
}

fn work_of(gives_up: bool) -> Result<()> {
    let parent = tempfile::tempdir().expect("temporary directory");
    let place = Place::new("siftfs-apps-test", 1 << 20, Some(parent.path()))?;
    let site = Site::kernel(parent.path(), parent.path());
    work(&place, &Sample { gives_up }, &site, Duration::from_millis(50), None)
}

#[test]
fn who_works_to_the_end_is_well() {
    work_of(false).expect("told to stop");
}

#[test]
fn who_gives_up_early_fails_with_its_own_words() {
    let Failed(message) = work_of(true).expect_err("it gave up");
    assert_eq!(message, "no more");
}
