(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
_nmt() {
    local -a found open closed
    [[ $words[CURRENT-1] == (-cd|--config-dir) ]] && { _files -/; return }
    found=("${(@f)$(${~words[1]} --complete "$PREFIX" 2>/dev/null)}")
    open=(${(M)found:#*[=./]})
    closed=(${${found:#*[=./]}:#})
    if (( $#open + $#closed )); then
        (( $#open )) && compadd -Q -S '' -a open
        (( $#closed )) && compadd -Q -a closed
    else
        compset -P '*='
        _files
    fi
}
compdef _nmt NMT_COMMANDS
