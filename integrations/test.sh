#!/bin/sh
# Tests of the integrations, as `make integrations` runs them: test.sh DIR, where everything is built.
# SIFTFS names the command. Each part has a volume of its own, which is plain ext4 afterwards.
set -eu
out=$(readlink -f "$1")
here=$(dirname "$(readlink -f "$0")")
siftfs=$(readlink -f "$SIFTFS")
work=$(mktemp -d "${TMPDIR:-/tmp}/siftfs-integrations.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
PATH="$PATH:/usr/sbin:/sbin"

# Runs the words behind the name with a new volume in $volume, which is reached at $at. Where they
# set $holds to a directory and a name, that must be there afterwards: it was our library that the
# program had. (The shell looks at no command by
# itself in what stands before `||`: functions that are called so say where they end.)
part() {
    name=$1
    shift
    echo "== $name"
    volume=$work/volume
    rm -f "$volume"
    "$siftfs" mkfs "$volume" --size 512M >"$work/mkfs.out"
    at=$volume
    holds=
    "$@" || { echo "FAILED: $name" >&2; exit 1; }
    e2fsck -fn "$volume" >"$work/e2fsck.out" 2>&1 || {
        cat "$work/e2fsck.out" >&2
        echo "FAILED: $name: e2fsck" >&2
        exit 1
    }
    [ -z "$holds" ] || debugfs -R "ls -p ${holds% *}" "$volume" 2>/dev/null | grep -q "${holds#* }" || {
        echo "FAILED: $name: no ${holds#* } in ${holds% *} of the volume" >&2
        exit 1
    }
}

# Runs the words with a server of the volume, which ends in order then. $at is where it listens.
served() {
    at=unix:$work/socket
    rm -f "$work/socket"
    "$siftfs" serve "$volume" --listen "$at" >"$work/serve.out" 2>&1 &
    server=$!
    while kill -0 $server && ! [ -S "$work/socket" ]; do sleep 0.05; done
    result=0
    "$@" || result=1
    kill -TERM $server
    wait $server || { cat "$work/serve.out"; return 1; }
    return $result
}

# Runs the words with a target that has the volume's storage, and a server of that. Files are at the target then.
at_a_target() {
    listen=unix:$work/target
    rm -f "$work/target"
    "$siftfs" device "$volume" --listen "$listen" >"$work/target.out" 2>&1 &
    target=$!
    while kill -0 $target && ! [ -S "$work/target" ]; do sleep 0.05; done
    at=unix:$work/socket
    rm -f "$work/socket"
    "$siftfs" serve "target:$listen/volume" --listen "$at" >"$work/serve.out" 2>&1 &
    server=$!
    while kill -0 $server && ! [ -S "$work/socket" ]; do sleep 0.05; done
    at=direct:$at
    result=0
    "$@" || result=1
    kill -TERM $server
    wait $server || { cat "$work/serve.out"; result=1; }
    kill -TERM $target
    wait $target || { cat "$work/target.out"; return 1; }
    return $result
}

# Fails unless a test of gtest's ran so many cases at least: none would be a success, too.
gtest() { # least program words...
    least=$1
    shift
    "$@" >"$work/gtest.out" 2>&1 || { cat "$work/gtest.out"; return 1; }
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$work/gtest.out")
    echo "$passed passed"
    [ "$passed" -ge "$least" ]
}

leveldb_env_test() {
    holds="/tests open_on_read.txt"
    SIFTFS_VOLUME=$at SIFTFS_OPS=$1 TEST_TMPDIR=/tests gtest 7 "$out/leveldb_env_test"
}

rocksdb_env_test() {
    mkdir -p "$work/tests"
    holds="$work tests"
    TEST_FS_URI=siftfs://$at SIFTFS_OPS=$1 TEST_TMPDIR=$work/tests \
        gtest 8 "$out/rocksdb_env_test" --gtest_filter='CustomEnv*'
}

records() { # least
    rm -rf "$work/records" && mkdir "$work/records" || return 1
    count=$("$2" records "$at" "$work/records") || return 1
    echo "the same log; $count checksums of records computed by the file system"
    [ "$count" -ge "$1" ] && { [ "$1" != 0 ] || [ "$count" = 0 ]; }
}

# A program that knows nothing of SiftFS.
db_bench_unmodified() {
    holds="/bench CURRENT"
    LD_PRELOAD=$out/libsiftfs_rocksdb.so db_bench --fs_uri="siftfs://$at" --db=/bench \
        --benchmarks=fillseq,readrandom --sync=1 --num=500 >"$work/db_bench.out" 2>&1 || {
        cat "$work/db_bench.out"
        return 1
    }
    grep -E '^(fillseq|readrandom)' "$work/db_bench.out"
}

plyvel_unmodified() {
    LD_PRELOAD=$out/libsiftfs_leveldb.so SIFTFS_VOLUME=$volume /usr/bin/python3 - <<'EOF' || return 1
import plyvel
db = plyvel.DB("/py", create_if_missing=True)
for i in range(100):
    db.put(b"%d" % i, b"v" * i, sync=i % 10 == 0)
db.close()
EOF
    LD_PRELOAD=$out/libsiftfs_leveldb.so SIFTFS_VOLUME=$volume /usr/bin/python3 - <<'EOF'
import plyvel
db = plyvel.DB("/py")
assert dict(db) == {b"%d" % i: b"v" * i for i in range(100)}
db.close()
EOF
}

# What is no volume, and one that another process has, are refused in words.
refused() {
    head -c 1000000 /dev/zero >"$work/none"
    ! "$out/leveldb_work" check "$work/none" compound 0 2>"$work/none.err" || return 1
    cat "$work/none.err"
    ! "$out/leveldb_work" check "$work/absent" compound 0 2>"$work/none.err" || return 1
    grep "No such file" "$work/none.err" || return 1
    rm -f "$work/numbers"
    "$out/leveldb_work" put "$volume" compound 0 >"$work/numbers" &
    holder=$!
    while kill -0 $holder && ! [ -s "$work/numbers" ]; do sleep 0.05; done
    status=0
    "$out/rocksdb_work" check "$volume" compound 0 2>"$work/none.err" && status=1
    kill -9 $holder
    wait $holder || true
    grep "busy" "$work/none.err" && [ $status = 0 ] && "$out/leveldb_work" check "$volume" compound \
        $(($(wc -c <"$work/numbers") / 8))
}

# Another process has the database open: it is locked, and free again when that one is killed.
locked() {
    rm -f "$work/numbers"
    "$out/leveldb_work" put "$at" compound 0 >"$work/numbers" &
    holder=$!
    while kill -0 $holder && ! [ -s "$work/numbers" ]; do sleep 0.05; done
    status=0
    "$out/leveldb_work" check "$at" compound 0 2>"$work/none.err" && status=1
    kill -9 $holder
    wait $holder || true
    grep "already held" "$work/none.err" && [ $status = 0 ] && "$out/leveldb_work" check "$at" compound \
        $(($(wc -c <"$work/numbers") / 8))
}

# A program is killed in the middle of its puts, again and again.
killed() { # program ops
    python3 "$here/crash.py" "$1" "$2" "$kills" "$at"
}

# So is the server before, and the program goes on with the next one; with --told, its put may fail.
server_killed() { # program ops words...
    python3 "$here/crash.py" "$1" "$2" "$kills" "$volume" --server "unix:$work/socket" $3
}

kills=${SIFTFS_INTEGRATION_KILLS:-6}
for ops in compound single; do
    part "LevelDB's env_test, $ops" leveldb_env_test $ops
    part "RocksDB's env_basic_test, $ops" rocksdb_env_test $ops
    part "LevelDB's env_test, served, $ops" served leveldb_env_test $ops
    part "RocksDB's env_basic_test, served, $ops" served rocksdb_env_test $ops
    part "LevelDB killed, served, $ops" served killed "$out/leveldb_work" $ops
    part "RocksDB killed, served, $ops" served killed "$out/rocksdb_work" $ops
    part "LevelDB killed, $ops" \
        python3 "$here/crash.py" "$out/leveldb_work" $ops "$kills" "$work/volume"
    part "RocksDB killed, $ops" \
        python3 "$here/crash.py" "$out/rocksdb_work" $ops "$kills" "$work/volume"
done
part "LevelDB with the patch killed, compound" \
    python3 "$here/crash.py" "$out/leveldb_work_patched" compound "$kills" "$work/volume"
part "LevelDB with the patch killed, served" served killed "$out/leveldb_work_patched" compound
part "LevelDB, and servers killed" server_killed "$out/leveldb_work" single ""
part "RocksDB, and servers killed" server_killed "$out/rocksdb_work" single ""
part "LevelDB with the patch, and servers killed" server_killed "$out/leveldb_work_patched" compound --told
part "RocksDB by compounds, and servers killed" server_killed "$out/rocksdb_work" compound --told
part "LevelDB's env_test, at a target" at_a_target leveldb_env_test compound
part "RocksDB's env_basic_test, at a target" at_a_target rocksdb_env_test compound
part "LevelDB killed, at a target" at_a_target killed "$out/leveldb_work" compound
part "RocksDB killed, at a target" at_a_target killed "$out/rocksdb_work" compound
part "a database of a served volume has one user" served locked
part "a database at a target has one user" at_a_target locked
part "LevelDB's log, with the patch" records 120 "$out/leveldb_work_patched"
part "LevelDB's log, served, with the patch" served records 120 "$out/leveldb_work_patched"
part "LevelDB's log, without" records 0 "$out/leveldb_work"
part "LevelDB on a full volume, compound" "$out/leveldb_work_patched" full "$work/volume" compound
part "LevelDB on a full volume, single" "$out/leveldb_work" full "$work/volume" single
part "what is refused" refused
part "RocksDB hands checksums over" "$out/rocksdb_work" handover "$work/volume"
part "RocksDB's names" "$out/rocksdb_work" names "$work/volume"
part "db_bench as Debian has it" db_bench_unmodified
part "db_bench as Debian has it, served" served db_bench_unmodified
part "plyvel as Debian has it" plyvel_unmodified
echo "all integrations' tests passed"
