# Completion of BIN in bash, which asks the program itself.
_xb_complete_NAME() {
    local line=${COMP_LINE:0:COMP_POINT} words=() word i
    # Bash cuts words at @, = and :. Joins what stands together in the line, up to the cursor.
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if ((i == 0)) || [[ $line == [[:space:]]* ]]; then
            line=${line#"${line%%[![:space:]]*}"}
            words+=("")
        fi
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=$line
        words[${#words[@]} - 1]+=$word
        line=${line#"$word"}
    done
    # Bash replaces $2, the end of the word.
    local index=$((${#words[@]} - 1)) reply=()
    local before=${words[index]%"$2"}
    mapfile -t reply < <(_CLAP_IFS=$'\n' _CLAP_COMPLETE_INDEX=$index VARIABLE=bash COMPLETER -- "${words[@]}" 2>/dev/null)
    COMPREPLY=()
    # Bash puts them into the line as they are: a name from a store must not become a command.
    for word in "${reply[@]}"; do
        printf -v word %q "${word#"$before"}"
        COMPREPLY+=("$word")
    done
    # More follows these.
    [[ ${#reply[@]} != 1 || ${reply[0]} != *[=/:] ]] || compopt -o nospace 2>/dev/null
}
complete -o default -o nosort -F _xb_complete_NAME BIN
