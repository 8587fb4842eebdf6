# Measures on the launching host: what is started, beside what ssh alone takes. Prints `KEY MILLISECONDS` lines.
# Arguments: launcher, program that does nothing, repetitions, hydra's mpiexec or nothing.
launcher=$1 noop=$2 count=$3 hydra=$4
hosts=(n1 n2 n3 n4)
list=n1,n2,n3,n4
timed() { # timed KEY COMMAND…
    local key=$1 begin=${EPOCHREALTIME/[.,]/} took
    shift
    "$@" </dev/null >/dev/null 2>/tmp/err || {
        echo "failed $key: $* ended with $?: $(tail -n 1 /tmp/err)"
        exit 1
    }
    took=$((${EPOCHREALTIME/[.,]/} - begin))
    [ "$round" = 0 ] || printf '%s %d.%03d\n' "$key" $((took / 1000)) $((took % 1000))
}
parallel() {
    local host all=()
    for host in "${hosts[@]}"; do
        ssh -o BatchMode=yes -T "$host" true &
        all+=($!)
    done
    for host in "${all[@]}"; do wait "$host" || return; done
}
trips() { # microseconds of one round trip of 64 bytes through a channel
    local line begin number word
    line=$(printf '%063d' 0)
    coproc channel { exec ssh -o BatchMode=yes -T n1 cat; }
    for number in 0 1 2 3 4 5 6 7 8 9; do
        echo "$line" >&"${channel[1]}"
        read -r word <&"${channel[0]}"
    done
    begin=${EPOCHREALTIME/[.,]/}
    for ((number = 0; number < 200; number++)); do
        echo "$line" >&"${channel[1]}"
        read -r word <&"${channel[0]}"
    done
    begin=$((${EPOCHREALTIME/[.,]/} - begin))
    echo "trip $((begin / 200))"
    exec {channel[1]}>&-
    wait
}
if [ "$count" = trips ]; then
    trips
    exit
fi
for ((round = 0; round <= count; round++)); do
    timed gasnetrun_ibv "$launcher" -n 16 --hosts "$list" "$noop"
    timed ssh parallel
    [ -z "$hydra" ] || timed mpiexec.hydra "$hydra" -launcher ssh -hosts "$list" -n 16 -ppn 4 "$noop"
done
