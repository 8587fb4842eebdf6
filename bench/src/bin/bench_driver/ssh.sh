# Measures on the launching host: what is started, beside what ssh alone takes. Prints `KEY MILLISECONDS` lines.
# Arguments: launcher, program that does nothing, repetitions, and, each a path or nothing, mpiexec.hydra, mpirun.openmpi, the
# program that only logs in.
launcher=$1 noop=$2 count=$3 hydra=$4 mpirun=$5 logins=$6
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
each=(ours program ssh)
[ -z "$hydra" ] || each+=(hydra)
[ -z "$mpirun" ] || each+=(mpirun)
[ -z "$logins" ] || each+=(logins)
for ((round = 0; round <= count; round++)); do
    # Each goes first in turn.
    for ((turn = 0; turn < ${#each[@]}; turn++)); do
        case ${each[(round + turn) % ${#each[@]}]} in
            ours) timed gasnetrun_ibv "$launcher" -n 16 --hosts "$list" "$noop" ;;
            ssh) timed ssh parallel ;;
            program) timed 'by the ssh program' env GASNET_SSH_CMD=ssh "$launcher" -n 16 --hosts "$list" "$noop" ;;
            logins) timed logins "$logins" root /etc/ssh/id_root "${hosts[@]}" ;;
            mpirun)
                timed mpirun env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
                    "$mpirun" --oversubscribe --host "${list//,/:4,}:4" -np 16 "$noop" ;;
            hydra) timed mpiexec.hydra "$hydra" -launcher ssh -hosts "$list" -n 16 -ppn 4 "$noop" ;;
        esac
    done
done
