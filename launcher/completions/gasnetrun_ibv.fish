complete -c gasnetrun_ibv -s n -d 'Number of ranks (processes) of the job; also written -np P, -nP, -npP' -r
complete -c gasnetrun_ibv -s N -d 'Number of hosts: the first H of the host list are used (default: as many as it has, at most P; also -NH)' -r
complete -c gasnetrun_ibv -l hosts -d 'Hosts to start ranks on, between commas or blanks, as in n1,me@n2,n[3-6]; beats all variables' -r
complete -c gasnetrun_ibv -l hostfile -d 'File with one host per line; beats all variables' -r -F
complete -c gasnetrun_ibv -l map -d 'Which rank runs where: block, cyclic, or a file with ranks and their host in each line' -r -F
complete -c gasnetrun_ibv -s c -d 'Cpus per rank: rank i is bound to its own set of K cpus; 0, the default, leaves binding alone (also -cK)' -r
complete -c gasnetrun_ibv -s E -d 'Variables to forward to other hosts: comma-separated names, or ALL' -r
complete -c gasnetrun_ibv -l spawner -d 'How ranks are started: ssh, mpi or pmi; beats GASNET_IBV_SPAWNER (default: ssh); also -spawner=NAME' -r
complete -c gasnetrun_ibv -l wdir -d 'Working directory of the ranks (default: the launcher\'s own)' -r -f -a "(__fish_complete_directories)"
complete -c gasnetrun_ibv -l timeout -d 'End the job with code 124 after this time: seconds, or a number followed by s, m or h' -r
complete -c gasnetrun_ibv -l start-timeout -d 'Give up when not every host is ready after this time (default: 2 minutes); same form as --timeout' -r
complete -c gasnetrun_ibv -l stage -d 'Whether this launcher\'s program is sent to other hosts as their agent' -r -f -a "auto\t'When it is missing there, or of another version'
never\t'Never'
always\t'Always'"
complete -c gasnetrun_ibv -l stdin -d 'Who reads the launcher\'s standard input: none, all, or one rank' -r
complete -c gasnetrun_ibv -l output-dir -d 'Also write every rank\'s output, unchanged, to rank.N.out and rank.N.err in this directory (made if missing)' -r -f -a "(__fish_complete_directories)"
complete -c gasnetrun_ibv -l report -d 'Write what became of the job to this file, as JSON; also when it could not be started' -r -F
complete -c gasnetrun_ibv -l progress -d 'How to show progress, on standard error' -r -f -a "auto\t'A bar while ranks start, when standard error is a terminal and it takes noticeable time; else nothing'
bar\t'A bar until the job ends; lines when standard error is not a terminal'
plain\t'One line per milestone'
none\t'Nothing'"
complete -c gasnetrun_ibv -l completions -d 'Print a completion script for this shell, and end' -r -f -a "bash\t''
elvish\t''
fish\t''
powershell\t''
zsh\t''"
complete -c gasnetrun_ibv -l tag-output -d 'Put "[rank] " in front of every line that a rank writes'
complete -c gasnetrun_ibv -l timestamp-output -d 'Put the time of day in front of every line that a rank writes'
complete -c gasnetrun_ibv -s v -d 'Say more, on standard error; twice: every step (sets GASNET_VERBOSEENV, twice also GASNET_SPAWN_VERBOSE)'
complete -c gasnetrun_ibv -s t -d 'Dry run: print exactly what would be started, start nothing and change nothing; implies -v'
complete -c gasnetrun_ibv -s k -d 'Keep temporary files; implies -v. On this host there are none; on others it is the agent that --stage sent'
complete -c gasnetrun_ibv -l print-settings -d 'Print the GASNET_* variables with their values, defaults and meaning, and end'
complete -c gasnetrun_ibv -l man -d 'Print the manual page in roff, and end'
complete -c gasnetrun_ibv -s h -l help -d 'Print help (see more with \'--help\')'
complete -c gasnetrun_ibv -s V -l version -d 'Print version'
