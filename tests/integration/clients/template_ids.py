"""The ids that Transformers makes of a chat. Usage: template_ids.py MODEL_FOLDER MESSAGES"""

import json
import sys

import transformers

tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
print(json.dumps(tokenizer.apply_chat_template(json.loads(sys.argv[2]), add_generation_prompt=True, return_dict=False)))
