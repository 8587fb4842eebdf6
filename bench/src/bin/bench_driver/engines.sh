# Starts programs through a launcher, one after the other in turn, and prints `KEY MILLISECONDS` lines from launch to return.
# Arguments: rounds, words of the launcher, then a key and a command in turn. The first round fills the caches.
rounds=$1 launcher=$2
shift 2
timed() { # timed KEY COMMAND
    local begin=${EPOCHREALTIME/[.,]/} took
    # The words of launcher and command are meant to be parted.
    $launcher $2 </dev/null >/dev/null 2>/tmp/bench-engines.$$ || {
        echo "failed $1: $launcher $2 ended with $?: $(tail -n 1 /tmp/bench-engines.$$)" >&2
        rm -f /tmp/bench-engines.$$
        exit 1
    }
    took=$((${EPOCHREALTIME/[.,]/} - begin))
    [ "$round" = 0 ] || printf '%s %d.%03d\n' "$1" $((took / 1000)) $((took % 1000))
}
for ((round = 0; round <= rounds; round++)); do
    # Each goes first in turn.
    for ((step = 0; step < $# / 2; step++)); do
        at=$(((round + step) % ($# / 2) * 2 + 1))
        command=$((at + 1))
        timed "${!at}" "${!command}"
    done
done
rm -f /tmp/bench-engines.$$
