use super::*;

/// A machine in a directory.
fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
    let tmp = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = tmp.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = tmp.path().to_path_buf();
    (tmp, Machine { root })
}

fn run(machine: &Machine, to: TuneTo, edit: bool) -> Outcome {
    let root = machine.root.clone();
    tune(&Tune { to, off: false, json: false, edit_command_line: edit, root })
}

fn text(machine: &Machine, path: &str) -> Option<String> {
    read(&machine.at(path)).unwrap()
}

/// What is left to the administrator when it is to be `on`.
fn told(machine: &Machine, on: bool, edit: bool) -> Vec<String> {
    let steps = machine.steps(&machine.setting().unwrap(), on, edit).unwrap();
    steps.iter().filter(|s| matches!(s, Step::Tell(_))).map(ToString::to_string).collect()
}

const LOADED: [(&str, &str); 2] = [(PARAMETER, "N\n"), ("sys/module/fuse/initstate", "live\n")];

#[test]
fn a_module_is_switched_on_for_good_and_off_again() {
    let (_tmp, m) = machine(&LOADED);
    run(&m, TuneTo::Show, false).unwrap();
    assert_eq!(
        (text(&m, PARAMETER).unwrap(), text(&m, MODPROBE)),
        ("N\n".into(), None),
        "it only shows"
    );
    run(&m, TuneTo::On, false).unwrap();
    let setting = m.setting().unwrap();
    assert_eq!((setting.fuse, setting.now, setting.after_boot()), (Fuse::Module, Some(true), true));
    let conf = text(&m, MODPROBE).unwrap();
    assert!(conf.ends_with("\noptions fuse enable_uring=1\n"), "{conf}");
    assert!(m.steps(&setting, true, false).unwrap().is_empty(), "nothing is left to do");
    run(&m, TuneTo::On, false).unwrap();
    run(&m, TuneTo::Off, false).unwrap();
    let setting = m.setting().unwrap();
    assert_eq!((setting.now, setting.after_boot(), text(&m, MODPROBE)), (Some(false), false, None));
    run(&m, TuneTo::Off, false).unwrap();
}

/// What an administrator wrote is never touched, and named where it is in the way.
#[test]
fn files_of_others_are_left_alone() {
    let other =
        ("etc/modprobe.d/zz.conf", "# mine\noptions fuse max_user_bgreq=9 enable_uring=0\n");
    let (_tmp, m) = machine(&[&LOADED[..], &[other]].concat());
    run(&m, TuneTo::On, false).unwrap();
    assert_eq!(text(&m, other.0).unwrap(), other.1);
    assert!(!m.setting().unwrap().after_boot());
    assert!(told(&m, true, false)[0].contains("zz.conf"));
    let own = (MODPROBE, "options fuse enable_uring=1\n");
    let (_tmp, m) = machine(&[&LOADED[..], &[own]].concat());
    run(&m, TuneTo::Off, false).unwrap();
    assert_eq!(text(&m, MODPROBE).unwrap(), own.1, "it is not ours");
    assert!(told(&m, false, false)[0].contains("siftfs.conf"));
    // Of two files with one name the administrator's counts alone.
    let (a, b) = ("options fuse enable_uring=0\n", "options fuse enable_uring=1\n");
    let (_tmp, m) = machine(&[("etc/modprobe.d/x.conf", a), ("usr/lib/modprobe.d/x.conf", b)]);
    assert_eq!(m.setting().unwrap().files, [(m.at("etc/modprobe.d/x.conf"), false)]);
}

/// Where FUSE is built in, the kernel's command line says it: it is named, and changed only when
/// that is asked for.
#[test]
fn a_kernel_with_fuse_built_in() {
    let (_tmp, m) = machine(&[(PARAMETER, "N\n"), ("proc/cmdline", "quiet root=/dev/vda\n")]);
    for edit in [false, true] {
        run(&m, TuneTo::On, edit).unwrap();
        let setting = m.setting().unwrap();
        assert_eq!(
            (setting.fuse, setting.now, setting.after_boot()),
            (Fuse::BuiltIn, Some(true), false)
        );
        assert!(told(&m, true, edit)[0].contains("add fuse.enable_uring=1 in"));
        assert_eq!(text(&m, MODPROBE), None);
    }
    let kernel = (KERNEL, "quiet root=/dev/vda\n");
    let (_tmp, m) = machine(&[(PARAMETER, "N\n"), kernel]);
    run(&m, TuneTo::On, false).unwrap();
    assert_eq!(text(&m, KERNEL).unwrap(), kernel.1, "not asked for");
    run(&m, TuneTo::On, true).unwrap();
    assert_eq!(text(&m, KERNEL).unwrap(), "quiet root=/dev/vda fuse.enable_uring=1\n");
    assert!(m.setting().unwrap().after_boot());
    run(&m, TuneTo::Off, true).unwrap();
    assert_eq!(text(&m, KERNEL).unwrap(), kernel.1);
    let (_tmp, m) = machine(&[(PARAMETER, "N\n"), ("etc/default/grub.d/a.cfg", "")]);
    run(&m, TuneTo::On, true).unwrap();
    let line = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX fuse.enable_uring=1\"\n";
    assert!(text(&m, GRUB).unwrap().ends_with(line));
    assert!(m.setting().unwrap().after_boot());
    run(&m, TuneTo::Off, true).unwrap();
    assert_eq!(text(&m, GRUB), None);
}

/// What the kernel was booted with counts where no file says what it will be booted with.
#[test]
fn a_boot_loader_that_is_not_known() {
    let booted = ("proc/cmdline", "quiet fuse.enable_uring=1\n");
    let (_tmp, m) = machine(&[(PARAMETER, "Y\n"), booted]);
    assert!(m.setting().unwrap().after_boot());
    assert!(told(&m, false, true)[0].contains("proc/cmdline"));
    let (_tmp, m) = machine(&[(PARAMETER, "Y\n"), booted, (KERNEL, "quiet\n")]);
    assert!(!m.setting().unwrap().after_boot());
}

/// A kernel without rings, an image that is no running machine, and a machine without a kernel.
#[test]
fn other_machines() {
    let (_tmp, m) = machine(&[("sys/module/fuse/parameters/max_user_bgreq", "0\n")]);
    let refused = run(&m, TuneTo::On, false).unwrap_err();
    assert!(refused.message.contains("Linux 6.14"), "{refused:?}");
    run(&m, TuneTo::Show, false).unwrap();
    run(&m, TuneTo::Off, false).unwrap();
    let image = [("usr/lib/modules/6.18/kernel/fs/fuse/fuse.ko.xz", "")];
    let (_tmp, m) = machine(&image);
    run(&m, TuneTo::On, false).unwrap();
    let setting = m.setting().unwrap();
    assert_eq!((setting.fuse, setting.now, setting.after_boot()), (Fuse::Module, None, true));
    let built_in = [("lib/modules/6.18/modules.builtin", "kernel/fs/fuse/fuse.ko\n")];
    let (_tmp, m) = machine(&built_in);
    assert_eq!(m.setting().unwrap().fuse, Fuse::BuiltIn);
    let (_tmp, m) = machine(&[]);
    run(&m, TuneTo::On, false).unwrap();
    assert_eq!((m.setting().unwrap().fuse, text(&m, MODPROBE).is_some()), (Fuse::Unknown, true));
}
