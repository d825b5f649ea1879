//! Daemons and commands that are not in one PID namespace, as in containers: the kernel tells each
//! the other's process as 0.

use crate::support::Setup;
use crate::umounts::run;

/// A container's init runs the daemon: its session began outside of the namespace. Files are used,
/// and the daemon is asked and unmounted, from outside.
#[test]
fn a_daemon_in_a_container() {
    let s = Setup::new();
    run(
        &s,
        r#"
for loop in device auto; do
    unshare --pid --fork --kill-child siftfs mount --foreground "$V" "$D" -o requests=$loop 2> "$T/log" &
    n=0
    until siftfs status "$D" > /dev/null 2>&1; do
        n=$((n + 1)); [ "$n" -lt 400 ] || { cat "$T/log"; fail 'never usable'; }
        sleep 0.05
    done
    echo abc > "$D/x"
    [ "$(cat "$D/x")" = abc ] || fail 'not read'
    sync "$D/x" || fail 'not durable'
    # The daemon cannot see which mount the command came through.
    ! siftfs publish "$D/x" "$D/y" > "$T/said" 2>&1 || fail 'published unseen'
    says 'not supported'
    [ -e "$D/x" ] && [ ! -e "$D/y" ] || fail 'a name changed'
    soon 0 siftfs umount "$D"
    wait $! || { cat "$T/log"; fail 'the daemon failed'; }
    ! grep -i 'internal error' "$T/log" || fail 'an internal error'
done
"#,
    );
    s.assert_plain_ext4();
}

/// The commands run in a container into which the mount and the sockets were passed, beside a
/// daemon that answers, one that is stopped, and one that is killed.
#[test]
fn commands_in_a_container() {
    let s = Setup::new();
    run(
        &s,
        r#"
inside="unshare --pid --fork --kill-child"
siftfs mount "$V" "$D" -o commit=3600
$inside sh -c 'echo abc > "$0/y" && sync "$0/y"' "$D" || fail 'not used'
$inside siftfs publish "$D/y" "$D/x" || fail 'not published'
$inside siftfs status "$D" > "$T/out" 2>&1 || { cat "$T/out"; fail 'no status'; }
$inside siftfs sync "$D" || fail 'no sync'
daemon=$(pid_of "$D")
kill -STOP "$daemon"
$inside timeout 20 siftfs status "$D" > "$T/out" 2>&1 &
sleep 1
kill -CONT "$daemon"
wait $! || { cat "$T/out"; fail 'no status of a daemon that went on'; }
soon 0 $inside siftfs umount "$D"
siftfs mount "$V" "$D"
[ "$(cat "$D/x")" = abc ] || fail 'lost'
kill -KILL "$(pid_of "$D")"
soon 1 $inside siftfs umount "$D"
says 'its daemon had died'
siftfs recover "$V" > /dev/null || fail 'not recovered'
"#,
    );
    s.assert_plain_ext4();
}
