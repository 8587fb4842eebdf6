# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_gasnetrun_ibv_global_optspecs
    string join \n n= N= hosts= hostfile= ranks-per-host= map= c= bind-to= place= report-bindings oversubscribe no-oversubscribe E= env= env-all= spawner= pmi= wdir= timeout= stall-timeout= debugger= debugger-ranks= container= spares= retry= checkpoint-signal= checkpoint-grace= requeue-code= start-timeout= stage= stdin= tag-output timestamp-output output-dir= report= trace= stats progress= v q/quiet t k print-settings completions= man np= n= ntasks= nodes= ppn= perhost= npernode= pernode ntasks-per-node= cpus-per-task= cpus-per-proc= cpus-per-rank= host= H= w= nodelist= machinefile= f= F= nodefile= map-by= bynode byslot m= distribution= npersocket= ntasks-per-socket= bind-to-core bind-to-socket cpu-bind= O overcommit nooversubscribe x= genv= genvlist= genvall export= wd= D= chdir= l label prepend-rank output= output-filename= xterm= i= input= time= Q verbose do-not-launch test-only show-progress h/help V/version
end

function __fish_gasnetrun_ibv_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_gasnetrun_ibv_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_gasnetrun_ibv_using_subcommand
    set -l cmd (__fish_gasnetrun_ibv_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s n -d 'Number of ranks (processes) of the job; also written -np P, -nP, -npP' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s N -d 'Number of hosts: the first H of the host list are used (default: as many as it has, at most P; also -NH)' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l hosts -d 'Hosts to start ranks on, between commas or blanks, as in n1,me@n2,n[3-6]; overrides all environment variables' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l hostfile -d 'File with one host per line; overrides all environment variables' -r -F
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l ranks-per-host -d 'Most ranks of a host: hosts get K consecutive ranks each, in order' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l map -d 'Which rank runs where: block, cyclic, slots, or a file with ranks and their host in each line' -r -F
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s c -d 'Cpus per rank: rank i is bound to its own set of K cpus; 0, the default, leaves binding alone (also -cK)' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l bind-to -d 'What each rank is bound to: core, socket, numa, or none, the default' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l place -d 'Where consecutive ranks of a host are bound: socket, numa or core deals them out one by one over those; N:PART puts N to each' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s E -d 'Variables to forward to other hosts: comma-separated names, or ALL; NAME=VALUE sets one for all ranks (may be repeated)' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l env -d 'One variable to forward to other hosts, or with a value to set for all ranks (may be repeated)' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l env-all -d 'The same for the ranks of all programs of the job' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l spawner -d 'How ranks are started: ssh, mpi or pmi; overrides GASNET_IBV_SPAWNER; also -spawner=NAME' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l pmi -d 'Serve ranks that are MPI programs, by PMI: on, openmpi, pmix or off (default: on, openmpi for a program of Open MPI 2 to 4, pmix for one that needs libpmix)' -r -f -a "on\t'PMI-1 and PMI-2'
openmpi\t'The same, and what makes Open MPI speak PMI-1'
pmix\t'PMI-1, PMI-2 and PMIx, through libpmix of each host'
off\t'Nothing'"
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l wdir -d 'Working directory of the ranks (default: the launcher\'s own); counts more than GASNET_SSH_REMOTE_PATH' -r -f -a "(__fish_complete_directories)"
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l timeout -d 'End the job with code 124 after this time: seconds, or a number followed by s, m or h' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l stall-timeout -d 'Say once where the ranks are when all of them have waited for this time, and no message has come; same form as --timeout' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l debugger -d 'Run the program of ranks under this debugger, or another command: gdb, lldb, \'xterm -e gdb\'' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l debugger-ranks -d 'Ranks that --debugger is for, as in 0,3-5 (default: all)' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l container -d 'Run each rank in a container that this command makes: \'apptainer exec a.sif\', \'podman run IMAGE\', \'bwrap --dev-bind / /\'' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l spares -d 'Hosts at the end of the list that are kept back, to take the place of hosts that fail' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l retry -d 'Start the job again when a host is lost or ranks cannot be started, at most so many times' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l checkpoint-signal -d 'Signal that the ranks get instead of the first SIGTERM to the launcher, so that they can write a checkpoint and exit' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l checkpoint-grace -d 'Time that ranks have after --checkpoint-signal (default: 30 s); same form as --timeout' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l requeue-code -d 'Exit code of the launcher when all ranks have left in good order after --checkpoint-signal, so that a batch script can queue the job again' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l start-timeout -d 'Give up when not every host is ready after this time (default: 2 minutes); same form as --timeout' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l stage -d 'When the program, and this launcher as agent, are copied to other hosts' -r -f -a "auto\t'When they are missing there, or others'
never\t'Never'
always\t'Always'"
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l stdin -d 'Who reads the launcher\'s standard input: none, all, or one rank (default: 0, or the rank of --debugger-ranks)' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l output-dir -d 'Also write every rank\'s output, unchanged, to rank.N.out and rank.N.err in this directory (made if missing)' -r -f -a "(__fish_complete_directories)"
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l report -d 'Write a JSON job report to this file, even when the job could not be started' -r -F
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l trace -d 'Record what the ranks do, and write it to this file as a timeline for Perfetto or chrome://tracing' -r -F
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l progress -d 'How to show progress, on standard error' -r -f -a "auto\t'A bar while ranks start, when standard error is a terminal and it takes noticeable time; else nothing'
bar\t'A bar until the job ends; lines when standard error is not a terminal'
plain\t'One line per milestone'
none\t'Nothing'"
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l completions -d 'Print a completion script for this shell, and end' -r -f -a "bash\t''
elvish\t''
fish\t''
powershell\t''
zsh\t''"
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l np -d '-n P' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l n -d '-n P' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l ntasks -d '-n P' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l nodes -d '-N H' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l ppn -d '--ranks-per-host K' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l perhost -d '--ranks-per-host K' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l npernode -d '--ranks-per-host K' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l ntasks-per-node -d '--ranks-per-host K' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l cpus-per-task -d '-c K' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l cpus-per-proc -d '-c K' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l cpus-per-rank -d '-c K' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l host -d '--hosts LIST' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s H -d '--hosts LIST' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s w -d '--hosts LIST' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l nodelist -d '--hosts LIST' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l machinefile -d '--hostfile FILE' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s f -d '--hostfile FILE' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s F -d '--hostfile FILE' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l nodefile -d '--hostfile FILE' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l map-by -d '--map, --place or --ranks-per-host' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s m -d '--map HOW' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l distribution -d '--map HOW' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l npersocket -d '--place N:socket' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l ntasks-per-socket -d '--place N:socket' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l cpu-bind -d '--bind-to PART' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s x -d '--env NAME[=VALUE]' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l genv -d '--env-all NAME=VALUE' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l genvlist -d '-E LIST' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l export -d '-E LIST' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l wd -d '--wdir DIR' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s D -d '--wdir DIR' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l chdir -d '--wdir DIR' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l output -d '--tag-output, --timestamp-output or --output-dir DIR' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l output-filename -d '--output-dir DIR' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l xterm -d '--debugger \'xterm -e\' --debugger-ranks RANKS' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s i -d '--stdin WHO' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l input -d '--stdin WHO' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l time -d '--timeout TIME' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l report-bindings -d 'Say which ranks are bound to which cores, on standard error, one line for each socket'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l oversubscribe -d 'Let hosts have more ranks than the host list gives them slots'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l no-oversubscribe -d 'Refuse more ranks on a host than it has cores that may be used'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l tag-output -d 'Put "[rank] " in front of every line that a rank writes'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l timestamp-output -d 'Put the time of day in front of every line that a rank writes'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l stats -d 'Print a table of what each rank sent and how long it waited, on standard error, at the end'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s v -d 'Print more on standard error; twice: every step (sets GASNET_VERBOSEENV, twice also GASNET_SPAWN_VERBOSE)'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s q -l quiet -d 'No warnings: sets GASNET_QUIET=1, for the ranks too, unless it is set already'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s t -d 'Dry run: print exactly what would be started, start nothing and change nothing; implies -v'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s k -d 'Keep temporary files; implies -v. On this host there are none; on other hosts those are the copies made by --stage'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l print-settings -d 'Print the GASNET_* variables with their values, defaults and meaning, and end'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l man -d 'Print the manual page in roff, and end'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l pernode -d '--ranks-per-host 1'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l bynode -d '--map cyclic'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l byslot -d '--map slots'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l bind-to-core -d '--bind-to core'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l bind-to-socket -d '--bind-to socket'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s O -d '--oversubscribe'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l overcommit -d '--oversubscribe'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l nooversubscribe -d '--no-oversubscribe'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l genvall -d '-E ALL'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s l -d '--tag-output'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l label -d '--tag-output'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l prepend-rank -d '--tag-output'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s Q -d '--quiet'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l verbose -d '-v'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l do-not-launch -d '-t'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l test-only -d '-t'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -l show-progress -d '--progress bar'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -s V -l version -d 'Print version'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -f -a "doctor" -d 'Runs every launch step on the hosts without starting ranks, and says what to repair'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -f -a "ps" -d 'Lists this user\'s jobs on this machine'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -f -a "top" -d 'Shows what the ranks of a job do: state, processor, memory, messages per second'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -f -a "stacks" -d 'Shows where the ranks of a job are in their program, equal stacks together'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -f -a "kill" -d 'Sends the ranks of a job a signal, as if its launcher had got it'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_needs_command" -f -a "attach" -d 'Runs a debugger for a rank of a job'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand doctor" -l hosts -d 'Hosts between commas or blanks, as in n1,me@n2,n[3-6]; overrides all environment variables' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand doctor" -l hostfile -d 'File with one host per line; overrides all environment variables' -r -F
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand doctor" -l stage -d 'Whether this launcher\'s program is sent to hosts that lack it, as for a job' -r -f -a "auto\t'When they are missing there, or others'
never\t'Never'
always\t'Always'"
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand doctor" -l start-timeout -d 'Give up on hosts that have not answered after this time (default: 2 minutes)' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand doctor" -l report -d 'Also write what was found to this file, as JSON' -r -F
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand doctor" -s V -l version -d 'Print version'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand ps" -l json -d 'Print JSON, a line per job'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand ps" -s h -l help -d 'Print help'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand top" -l interval -d 'Time between two pictures: seconds, or a number followed by s, m or h' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand top" -l once -d 'Print one picture and end'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand stacks" -l json -d 'Print JSON, a line per rank'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand stacks" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand kill" -s s -l signal -d 'The signal: a name or a number' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand kill" -s h -l help -d 'Print help'
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand attach" -l debugger -d 'The debugger; it gets -p and the process' -r
complete -c gasnetrun_ibv -n "__fish_gasnetrun_ibv_using_subcommand attach" -s h -l help -d 'Print help (see more with \'--help\')'
