# Completion of yalm for fish, by what the program itself lists.
for line in (yalm --help)
    set -l found (string match -r '^  (?:-([a-z]), )?--([a-z-]+)(?: (\S+))?' -- $line)
    or continue
    set -l option -l $found[3]
    test -n "$found[2]"; and set -a option -s $found[2]
    test -n "$found[4]"; and set -a option -r
    string match -q '*|*' -- "$found[4]"; and set -a option -a (string replace -a '|' ' ' -- $found[4])
    complete -c yalm $option
end
complete -c yalm -s m -l mode -x -a "(yalm --help | string match -rg '^  ([a-z]+) ')"
complete -c yalm -n __fish_is_first_arg -a cache -d 'what was converted'
