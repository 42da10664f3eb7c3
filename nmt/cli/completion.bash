_nmt() {
    local line=${COMP_LINE:0:COMP_POINT} word before found
    word=${line##*[[:space:]]}
    before=${word%"${word##*["$COMP_WORDBREAKS"]}"}  # bash replaces only the text after the last =
    COMPREPLY=()
    [[ $3 == -cd || $3 == --config-dir ]] && return
    while IFS= read -r found; do
        COMPREPLY+=("${found#"$before"}")
    done < <("${1/#\~/$HOME}" --complete "$word" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -gt 0 && ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -o bashdefault -o default -F _nmt NMT_COMMANDS
