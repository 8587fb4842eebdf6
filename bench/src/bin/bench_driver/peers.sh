# The same figures of ours, of UCX, of libfabric and of bare means on one wire, by turns. Runs on the machine itself (tcp) or in
# the virtual machine (roce). Arguments: DIRECTORY of the programs, tcp|roce, ROUNDS. Prints `KEY VALUE` lines; the first round
# warms up. Every program has two processes, a processor each.
set -u -o pipefail
programs=$1 wire=$2 rounds=$3
export GASNET_SUPERNODE_MAXSIZE=1
port=13500
# Seconds of one program, with the time it is stopped; far more than any needs.
limit=600
case $wire in
    tcp)
        address=127.0.0.1 beside=tcp provider='tcp;ofi_rxm' domain=lo
        export GASNET_IBV_FABRIC=soft UCX_TLS=tcp UCX_NET_DEVICES=lo ;;
    roce)
        address=10.77.0.1 beside='' provider='verbs;ofi_rxm' domain=rxe0
        # One wire for all: the GID of IPv6. UCX's datagrams never arrive over that of IPv4, its own choice and ours, and a
        # packet of IPv4 costs the device 3 % more.
        export GASNET_IBV_FABRIC=verbs UCX_TLS=rc_v,ud_v:aux UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=0 GASNET_IBV_GID_INDEX=0
        # libfabric's completion queues for 256 peers are deeper than the device allows.
        export FI_UNIVERSE_SIZE=2 ;;
esac

fail() { echo "$1" >&2; exit 1; }

ours() { # ours KIND COUNT [tcp]: pair after pair
    exec "$programs/gasnetrun_ibv" -n 2 -c 1 "$programs/bench_net" "$1" 1000000 "${@:2}"
}

# served PORT COMMAND …: a server on processor 1 and, when it listens, the client of the same words on processor 0
served() {
    local port server tries
    port=$(printf %04X "$1")
    shift
    taskset -c 1 timeout "$limit" "$@" >/dev/null 2>/tmp/peers.server &
    server=$!
    for ((tries = 0; tries < 200; tries++)); do
        ! grep -q ":$port 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 || break
        sleep 0.05
    done
    taskset -c 0 timeout "$limit" "$@" "$address" 2>/tmp/peers.client || {
        kill "$server" 2>/dev/null
        fail "$* failed: $(tail -n 2 /tmp/peers.client /tmp/peers.server)"
    }
    wait "$server"
}

# ucx PORT WORDS …: ucx_perftest, columns once a second (2: median in µs of the last trips; of the second, 5: MiB/s, 7: messages)
ucx() {
    served "$1" ucx_perftest -p "$1" -v -n 1000000000 "${@:2}"
}

# flood PORT KEY FIELD FACTOR COUNT WORDS …: COUNT messages of ucx_perftest and a column of all (6: MiB/s, 8: messages a second)
flood() {
    served "$1" ucx_perftest -p "$1" -f -v -n "$5" "${@:6}" >/tmp/peers.ucx || exit 1
    tail -n 1 /tmp/peers.ucx | awk -F, -v key="ucx_$2" -v field="$3" -v factor="$4" \
        '$field > 0 { print key, $field * factor; found = 1 } END { exit !found }' || fail "ucx_perftest $*: $(cat /tmp/peers.ucx)"
}

# libfabric KEY FIELD FACTOR SIZE COUNT: a column of fi_pingpong (6: MB/s, 7: µs one way, both averages)
libfabric() {
    served 47592 fi_pingpong -p "$provider" -e rdm -d $domain -S "$4" -I "$5" >/tmp/peers.fi || exit 1
    awk -v key="ofi_$1" -v field="$2" -v factor="$3" -v size="$4" \
        '$1 == size || $1 == size / 1024 "k" { print key, $field * factor; found = 1 } END { exit !found }' /tmp/peers.fi ||
        fail "fi_pingpong: $(cat /tmp/peers.fi)"
}

# perftest KEY FIELD FACTOR COMMAND …
perftest() {
    local key=$1 field=$2 factor=$3 size
    shift 3
    size=$(sed -n 's/.* -s \([0-9]*\).*/\1/p' <<<"$*")
    served 18515 "$@" -d rxe0 -x 0 -F >/tmp/peers.raw || exit 1
    awk -v key="raw_$key" -v field="$field" -v factor="$factor" -v size="$size" \
        '$1 == size { print key, $field * factor; found = 1 } END { exit !found }' /tmp/peers.raw || fail "$*: $(cat /tmp/peers.raw)"
}

has() { command -v "$1" >/dev/null; }

# Fewer operations on the emulated machine. A flood is as long as a whole one of UCX there: the machine has two speeds and changes
# between them within it, which the median of short ones would hide.
if [ "$wire" = tcp ]; then few=5000 many=20000 blocks=400 large=20; else few=500 many=16000 blocks=400 large=40; fi
export -f ours served ucx flood libfabric perftest fail
export programs address provider domain limit

# turns COMMAND …: those that are here
turns() {
    local command here=() key field factor words
    for command in "$@"; do
        case $command in
            *ucx*) has ucx_perftest || continue
                port=$((port + 1))
                read -r key field factor _ words <<<"$command"
                # Over Soft-RoCE a flood of UCX does not go on once it was stopped.
                if [ "$wire" = roce ] && [[ $words = *_bw* ]]; then
                    command="once flood $port $key $((field + 1)) $factor $whole $words"
                else
                    command="column ucx_$key $field $factor ucx $port $words"
                fi ;;
            *libfabric*) has fi_pingpong || continue ;;
            *perftest*) [ "$wire" = roce ] && has ib_send_lat || continue ;;
        esac
        here+=("$command")
    done
    "$programs/bench_turns" "$rounds" $turn $slices "${here[@]}" || fail "the turns of $1 failed"
}

# Medians of trips: in slices of 100 ms. UCX prints once a second.
turn=1200 slices=12
turns "ours short $few${beside:+ $beside}" \
    "short 2 2 ucx -t ucp_am_lat -s 8 -w 100" \
    "tag 2 2 ucx -t tag_lat -s 8 -w 100" \
    "once libfabric short 7 2 8 $((2 * few))" \
    "once perftest short 5 2 ib_send_lat -s 8 -n $((2 * few))"
turns "ours seen $few" \
    "put_seen 2 1 ucx -t ucp_put_lat -s 8 -w 100" \
    "once perftest put_seen 5 1 ib_write_lat -s 8 -n $((2 * few))"
turns "ours get $few" \
    "get8 2 1 ucx -t ucp_get -s 8 -w 100 -O 1" \
    "once perftest get8 5 1 ib_read_lat -s 8 -n $((2 * few))"
# Rates count the time in which a program is stopped.
turn=1300 slices=1
whole=$many
turns "ours rate $many${beside:+ $beside}" \
    "rate 7 0.001 ucx -t ucp_am_bw -s 8 -w 100" \
    "once perftest rate 5 1000 ib_send_bw -s 64 -n $whole"
turns "ours puts $many" \
    "puts8 7 0.001 ucx -t ucp_put_bw -s 8 -w 100" \
    "once perftest puts8 5 1000 ib_write_bw -s 8 -n $whole"
whole=$blocks
turns "ours medium $blocks${beside:+ $beside}" \
    "medium 5 1.048576 ucx -t ucp_am_bw -s 65536 -w 10" \
    "once perftest medium 4 1.048576 ib_send_bw -s 65536 -n $whole"
whole=$large
turns "ours put $large" \
    "put 5 1.048576 ucx -t ucp_put_bw -s 1048576 -w 10" \
    "once perftest put 4 1.048576 ib_write_bw -s 1048576 -n $whole -t 8"
