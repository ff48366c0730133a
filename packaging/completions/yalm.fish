# Completion of yalm for fish, by what the program itself lists.
for line in (yalm --help)
    set -l found (string match -r '^  ((?:-[a-z], )?)--([a-z-]+)((?: \S+)?)' -- $line)
    or continue
    set -l option -l $found[3]
    test -n "$found[2]"; and set -a option -s (string sub -s 2 -l 1 -- $found[2])
    test -n "$found[4]"; and set -a option -r
    string match -q '*|*' -- "$found[4]"; and set -a option -f -a (string trim -- $found[4] | string replace -a '|' ' ')
    complete -c yalm $option
end
complete -c yalm -l dtype -x -a 'fp32 fp16 bf16 bf12 fp8 fp8_e5m2 q8 q6 q5 q4 q3 q2'
complete -c yalm -s m -l mode -x -a "(yalm --help | string match -rg '^  ([a-z]+)  ')"
complete -c yalm -n __fish_is_first_token -a cache -d 'what was converted'
