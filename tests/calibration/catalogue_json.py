# How the fit scripts write files of rank/catalogue: indented, but lists of plain numbers (the points and factors
# of corrections) on one line.
import json
import re


def written(content, sort_keys):
    text = json.dumps(content, indent=2, sort_keys=sort_keys)
    numbers = re.compile(r"\[\s+(-?[0-9][-0-9.eE+,\s]*?)\s+\]")
    return numbers.sub(lambda m: "[" + ", ".join(m.group(1).replace(",", " ").split()) + "]", text) + "\n"
