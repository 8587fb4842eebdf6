# The same figures of ours, of UCX, of libfabric and of bare means on one wire, by turns. Runs on the machine itself (tcp) or in
# the virtual machine (roce). Arguments: DIRECTORY of the programs, tcp|roce, ROUNDS. Prints `KEY VALUE` lines; the first round
# warms up. Every program has two processes, a processor each.
set -u -o pipefail
programs=$1 wire=$2 rounds=$3
export GASNET_SUPERNODE_MAXSIZE=1
port=13500
# Seconds of one program; far more than any needs.
limit=120
case $wire in
    tcp)
        address=127.0.0.1 beside=tcp provider='tcp;ofi_rxm' domain=lo
        export GASNET_IBV_FABRIC=soft UCX_TLS=tcp UCX_NET_DEVICES=lo ;;
    roce)
        address=10.77.0.1 beside='' provider='verbs;ofi_rxm' domain=rxe0
        # UCX's own choice of GID is one over which its datagrams never arrive.
        export GASNET_IBV_FABRIC=verbs UCX_TLS=rc_v,ud_v:aux UCX_NET_DEVICES=rxe0:1 UCX_IB_GID_INDEX=0
        # libfabric's completion queues for 256 peers are deeper than the device allows.
        export FI_UNIVERSE_SIZE=2 ;;
esac

fail() { echo "$1" >&2; exit 1; }

ours() { # ours KIND COUNT [tcp]: one pair, after one that warms up
    "$programs/gasnetrun_ibv" -n 2 -c 1 "$programs/bench_net" "$1" 1 "${@:2}" || fail "bench_net $* failed"
}

# served WAIT COMMAND …: a server on processor 1 and, when it listens, the client of the same words on processor 0
served() {
    local wait=$1 server
    shift
    taskset -c 1 timeout "$limit" "$@" >/dev/null 2>/tmp/peers.server &
    server=$!
    sleep "$wait"
    taskset -c 0 timeout "$limit" "$@" "$address" 2>/tmp/peers.client || {
        kill "$server" 2>/dev/null
        fail "$* failed: $(tail -n 2 /tmp/peers.client /tmp/peers.server)"
    }
    wait "$server"
}

# ucx KEY FIELD FACTOR WORDS …: a column of ucx_perftest (2: median in µs, 6: MiB/s, 8: messages a second)
ucx() {
    local key=$1 field=$2 factor=$3
    shift 3
    has ucx_perftest || return 0
    port=$((port + 1))
    served 0.5 ucx_perftest -p $port -f -v "$@" >/tmp/peers.ucx || exit 1
    tail -n 1 /tmp/peers.ucx | awk -F, -v key="ucx_$key" -v field="$field" -v factor="$factor" \
        '$field > 0 { print key, $field * factor; found = 1 } END { exit !found }' || fail "ucx_perftest $*: $(cat /tmp/peers.ucx)"
}

# libfabric KEY FIELD FACTOR SIZE COUNT: a column of fi_pingpong (6: MB/s, 7: µs one way, both averages)
libfabric() {
    has fi_pingpong || return 0
    served 0.5 fi_pingpong -p "$provider" -e rdm -d $domain -S "$4" -I "$5" >/tmp/peers.fi || exit 1
    awk -v key="ofi_$1" -v field="$2" -v factor="$3" -v size="$4" \
        '$1 == size || $1 == size / 1024 "k" { print key, $field * factor; found = 1 } END { exit !found }' /tmp/peers.fi ||
        fail "fi_pingpong: $(cat /tmp/peers.fi)"
}

# perftest KEY FIELD FACTOR COMMAND …
perftest() {
    local key=$1 field=$2 factor=$3 size
    shift 3
    if [ "$wire" != roce ] || ! has ib_send_lat; then return 0; fi
    size=$(sed -n 's/.* -s \([0-9]*\).*/\1/p' <<<"$*")
    served 1.5 "$@" -d rxe0 -x 1 -F >/tmp/peers.raw || exit 1
    awk -v key="raw_$key" -v field="$field" -v factor="$factor" -v size="$size" \
        '$1 == size { print key, $field * factor; found = 1 } END { exit !found }' /tmp/peers.raw || fail "$*: $(cat /tmp/peers.raw)"
}

has() { command -v "$1" >/dev/null; }

# Fewer operations on the emulated machine.
if [ "$wire" = tcp ]; then few=5000 many=200000 blocks=4000 large=200; else few=1000 many=4000 blocks=300 large=40; fi
for ((round = 0; round <= rounds; round++)); do
    {
        # Each figure of all, one after the other: other load of the machine comes and goes within a round.
        ours short $few $beside
        ucx short 2 2 -t ucp_am_lat -s 8 -n $few -w 100
        libfabric short 7 2 8 $few
        perftest short 5 2 ib_send_lat -s 8 -n $few
        ucx tag 2 2 -t tag_lat -s 8 -n $few -w 100
        ours small $few
        ucx put_seen 2 1 -t ucp_put_lat -s 8 -n $few -w 100
        perftest put_seen 5 1 ib_write_lat -s 8 -n $few
        ucx get8 2 1 -t ucp_get -s 8 -n $few -w 100 -O 1
        perftest get8 5 1 ib_read_lat -s 8 -n $few
        ours rate $many $beside
        ucx rate 8 0.001 -t ucp_am_bw -s 8 -n $many -w 100
        perftest rate 5 1000 ib_send_bw -s 64 -n $many
        ours puts $many
        ucx puts8 8 0.001 -t ucp_put_bw -s 8 -n $many -w 100
        perftest puts8 5 1000 ib_write_bw -s 8 -n $many
        ours medium $blocks $beside
        ucx medium 6 1.048576 -t ucp_am_bw -s 65536 -n $blocks -w 10
        perftest medium 4 1.048576 ib_send_bw -s 65536 -n $blocks
        ours put $large
        ucx put 6 1.048576 -t ucp_put_bw -s 1048576 -n $large -w 10
        perftest put 4 1.048576 ib_write_bw -s 1048576 -n $large -t 8
    } >/tmp/peers.round
    [ "$round" = 0 ] || cat /tmp/peers.round
done
