# Completion of yalm for bash, by what the program itself lists.
_yalm() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words
    [[ $word == = ]] && word=
    [[ $before == = ]] && before=${COMP_WORDS[COMP_CWORD - 2]}
    if [[ ${COMP_WORDS[1]} == cache ]]; then
        [[ $before == cache ]] && words=clear || words="stale $(yalm cache 2>/dev/null | sed -n 's/^\([0-9a-f]\{16\}\) .*/\1/p')"
    elif [[ $before == -m || $before == --mode ]]; then
        words=$(yalm --help | sed -n '/^Modes$/,/^Mode$/s/^  \([a-z][a-z]*\) .*/\1/p')
    elif [[ $before == --dtype ]]; then
        words="fp32 fp16 bf16 bf12 fp8 fp8_e5m2 q8 q6 q5 q4 q3 q2"
    elif [[ $before == --set ]]; then
        words=$(yalm --set help | sed -n 's/^  \([a-z_.]*=\).*/\1/p')
        compopt -o nospace
    elif [[ $before == -* ]]; then # values that the help lists, as --kv fp16|fp32|int8
        words=$(yalm --help | awk -v name="$before" '{ long = $1 ~ /,$/ ? 2 : 1; value = $(long + 1) }
            ($1 == name "," || $long == name) && value ~ /\|/ { gsub(/\|/, "\n", value); print value }')
    fi
    [[ $word == -* ]] && words=$(yalm --help | sed -n 's/^  \(-[a-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p')
    if [[ -n $words ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    else
        mapfile -t COMPREPLY < <(((COMP_CWORD == 1)) && compgen -W cache -- "$word"; compgen -f -- "$word")
    fi
}
complete -o filenames -o bashdefault -F _yalm yalm
