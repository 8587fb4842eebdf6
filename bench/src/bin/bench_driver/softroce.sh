# Runs inside the virtual machine: DIRECTORY (of the programs) PAIRS-OF-LATENCIES PAIRS [short]. Prints `KEY VALUE` lines; with
# `short` those of the round trip of a Short alone.
set -u -o pipefail
programs=$1 latencies=$2 pairs=$3 only=${4-}
export GASNET_SUPERNODE_MAXSIZE=1 GASNET_IBV_FABRIC=verbs

ours() { # ours KIND COUNT [verbs]: the first pair of a job warms up
    "$programs/gasnetrun_ibv" -n 2 -c 1 "$programs/bench_net" "$1" 1 "${@:2}" || exit 1
}

floods() { # floods COUNT: of puts and gets of 1 MB, 8 of them under way; the first sample warms up
    "$programs/gasnetrun_ibv" -n 2 -c 1 "$programs/bench_outside" 1 "$1" verbs || exit 1
}

strided() { # strided COUNT: of two samples the first warms up
    "$programs/gasnetrun_ibv" -n 2 -c 1 "$programs/bench_vis" 2 "$1" >/tmp/strided || exit 1
    grep -E '^(strided|contiguous)_us ' /tmp/strided | tail -n 2
}

# perftest KEY FIELD FACTOR COMMAND …: server and client of one device, a processor each as our ranks have; the field is of the
# line that begins with the size
perftest() {
    local key=$1 field=$2 factor=$3 size server
    shift 3
    size=$(sed -n 's/.* -s \([0-9]*\).*/\1/p' <<<"$*")
    size=${size:-8} # atomics have one size
    taskset -c 1 "$@" -d rxe0 -x 1 -F >/dev/null 2>&1 &
    server=$!
    sleep 1.5
    taskset -c 0 "$@" -d rxe0 -x 1 -F 10.77.0.1 2>/tmp/perftest.err |
        awk -v key="$key" -v field="$field" -v factor="$factor" -v size="$size" \
            '$1 == size { print key, $field * factor; found = 1 } END { exit !found }' || {
        echo "$* failed: $(tail -2 /tmp/perftest.err)" >&2
        kill "$server" 2>/dev/null
        exit 1
    }
    wait "$server"
}

# Gets of ours and reads of perftest by turns of 50 ms: both programs run, and one of them is stopped. Medians do not see the
# gaps. Ours begins, so that its start is no part of a turn; of its series the median counts.
gets_in_turns() { # gets_in_turns SERIES READS
    local job rank perftest pause=/tmp/pause
    [ -p $pause ] || mkfifo $pause
    rm -f /tmp/rank /tmp/gets
    # shellcheck disable=SC2016
    "$programs/gasnetrun_ibv" -n 2 -c 1 sh -c '[ "$GASNETRUN_RANK" = 1 ] || echo $$ >/tmp/rank; exec "$0" "$@"' \
        "$programs/bench_net" get "$1" 2000 >/tmp/gets &
    job=$!
    until [ -s /tmp/gets ]; do read -rt 0.05 <>$pause; done
    rank=$(cat /tmp/rank)
    kill -STOP "$rank"
    perftest read_lat_turns_us 5 1 ib_read_lat -s 8 -n "$2" >/tmp/reads &
    until perftest=$(pgrep -f '^ib_read_lat .* 10.77.0.1$'); do read -rt 0.05 <>$pause; done
    while kill -0 "$perftest" 2>/dev/null && kill -0 "$rank" 2>/dev/null; do
        read -rt 0.05 <>$pause
        kill -STOP "$perftest" 2>/dev/null
        kill -CONT "$rank" 2>/dev/null
        read -rt 0.05 <>$pause
        kill -STOP "$rank" 2>/dev/null
        kill -CONT "$perftest" 2>/dev/null
    done
    kill -CONT "$rank" "$perftest" 2>/dev/null
    wait "$job" || exit 1
    wait || exit 1
    cat /tmp/reads
    sort -nk2 /tmp/gets | awk '{ line[NR] = $0 } END { print line[int((NR + 1) / 2)] }'
}

# System calls of rank 0 for each of COUNT round trips: those of jobs with 2 x COUNT less those of jobs with COUNT.
system_calls() { # system_calls COUNT
    local trips counted=()
    for trips in "$1" $((2 * $1)); do
        # shellcheck disable=SC2016
        "$programs/gasnetrun_ibv" -n 2 -c 1 sh -c '[ "$GASNETRUN_RANK" = 1 ] && exec "$0" "$@"; exec strace -f -qq -o /tmp/trace "$0" "$@"' \
            "$programs/bench_net" short 1 "$trips" >/dev/null || exit 1
        # Waiting is no part of a message, and a busy machine waits more.
        counted+=("$(awk '{ sub(/\(.*/, "", $2); if ($2 !~ /^(sched_yield|futex|e?poll.*|ppoll|clock_nanosleep|<\.\.\.)$/) count[$2 ~ /^(write|ioctl)$/]++ }
            END { print count[1] + 0, count[0] + 0 }' /tmp/trace)")
    done
    # Two series, because the first of each job warms up.
    awk -v count=$((2 * $1)) '{ split($0, n, " "); print "post_calls_per_trip", (n[3] - n[1]) / count; print "other_calls_per_trip", (n[4] - n[2]) / count }' \
        <<<"${counted[*]}"
}

shorts() {
    perftest send_lat_twice_us 5 2 ib_send_lat -s 8 -n 2000
    ours short 2000
}

if [ "$only" = short ]; then
    for ((pair = 0; pair < latencies; pair++)); do shorts; done
    exit
fi
ours quiet 500
command -v strace >/dev/null && system_calls 300
for ((pair = 0; pair < latencies; pair++)); do
    shorts
    perftest atomic_lat_us 5 1 ib_atomic_lat -A FETCH_AND_ADD -n 2000
    ours atomic 1000 | grep fetch_add
    perftest write_lat_us 5 1 ib_write_lat -s 8 -n 2000
    ours small 1000 verbs
    gets_in_turns 12 20000
done
for ((pair = 0; pair < pairs; pair++)); do
    for kind in RDMADISSEM AMDISSEM; do
        GASNET_BARRIER=$kind ours barrier 500 | sed "s/^/${kind,,}_/"
    done
    # -b of perftest's bandwidth: MB/s with 2^20 bytes by default, so as decimal ones by and 125.
    perftest send_bw_mbps 4 1.048576 ib_send_bw -s 65536 -n 1000
    ours medium 1000
    # As many under way as we have.
    perftest write_bw_mbps 4 1.048576 ib_write_bw -s 1048576 -n 100 -t 8
    floods 64
    perftest read_bw_mbps 4 1.048576 ib_read_bw -s 1048576 -n 100 -t 8
    strided 20
done
