#!/usr/bin/env python3
"""Trains small tokenizers of the kinds that models come with, and records what the real libraries make of texts in many
scripts and of chats: tests/golden/tokenizers, which tests/unit/launch/tokenizer compares with.

Usage: record_tokenizers.py FOLDER [TEXTS]      FOLDER: where the folders of the tokenizers go; TEXTS: random ones each

Needs tokenizers, transformers, sentencepiece and jinja2 from PyPI; no torch. The files in the repository were made with
tokenizers 0.22.2, Transformers 5.15.1, sentencepiece 0.2.3 and Jinja2 3.1.6.
"""

import io
import json
import os
import random
import sys

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils.chat_template_utils import render_jinja_template

SENTENCES = """The scheduler forms a batch, and every rank computes its share of the heads.
How fast would this be on eight GPUs? Nobody knows until it is measured: 1234567 tokens, 3.14159 seconds.
def step(self, batch):\n    return [request.next() for request in batch if not request.finished]
We're sure it'll work; they've said it's theirs, I'd guess you'd agree. DON'T SHOUT!
Der Plan läuft über die Größe der Blöcke, und die Prüfung schließt fünf Fälle aus.
L'été dernier, où étiez-vous ? Ça dépend de l'œuvre, naïve mais sûre.
El niño comió piñas mañana; ¿cuándo vendrá la cigüeña? ¡Qué pregunta!
Быстрая проверка показывает, что очередь запросов пуста, а память свободна.
Η γρήγορη αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.
הזיכרון פנוי והתור ריק, אבל השרת עדיין עסוק.
الذاكرة فارغة والطابور طويل، لكن الخادم لا يزال مشغولا.
सर्वर ने उत्तर दिया और स्मृति खाली हो गई।
หน่วยความจำว่างและคิวยาวแต่เซิร์ฟเวอร์ยังทำงาน
调度器把请求放进批次,每个进程计算自己的部分。
スケジューラはリクエストをまとめて、各ランクが計算します。
스케줄러는 요청을 모아서 배치를 만들고 각 랭크가 계산합니다.
Bộ nhớ còn trống nhưng hàng đợi dài quá.
🙂🚀 👩‍👩‍👧 e\u0301 ﬁ Å ½ ™ — “quotes” … naïve café
""".replace("\\n", "\n").splitlines()

# Ranges of letters from which random texts are drawn.
SCRIPTS = [(0x20, 0x7E), (0xA1, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x5D0, 0x5EA), (0x621, 0x64A), (0x905, 0x939),
           (0xE01, 0xE3A), (0x3041, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F), (0x300, 0x36F),
           (0x20000, 0x2A6DF)]
SPACES = [" ", " ", " ", "  ", "\n", "\t", "\n\n", "\u3000", "\u00a0", "\r\n"]

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ["<|begin|>", "<|end|>", "<|start_of_role|>", "<|end_of_role|>"]


def random_texts(count, seed):
    draw = random.Random(seed)
    texts = ["", " ", "a", "  leading", "trailing  ", "<|begin|>hi<|end|> there", "a\0b", "\n\n\n", "'s 'S don't"]
    words = [word for sentence in SENTENCES for word in sentence.split(" ")]
    for _ in range(count):
        text = ""
        for _ in range(draw.randint(1, 12)):
            if draw.random() < 0.6:
                text += draw.choice(words)
            else:
                low, high = draw.choice(SCRIPTS)
                text += "".join(chr(draw.randint(low, high)) for _ in range(draw.randint(1, 6)))
            if draw.random() < 0.8:
                text += draw.choice(SPACES)
            if draw.random() < 0.05:
                text += draw.choice(SPECIAL)
        texts.append(text)
    return texts


def byte_level(normalizer):
    """Llama 3's and Qwen's kind."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=normalizer is None))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(SENTENCES * 3, trainer)
    if normalizer is None:
        tokenizer.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 0)])
    return tokenizer


def byte_fallback():
    """Llama 2's and Gemma's kind: words behind a mark, bytes for what the vocabulary lacks."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=800, show_progress=False,
                                  special_tokens=["<unk>", *SPECIAL] + [f"<0x{byte:02X}>" for byte in range(256)])
    tokenizer.train_from_iterator([sentence.lower() for sentence in SENTENCES[:6]] * 3, trainer)
    # A trainer makes special tokens of them; in a model they are parts of the vocabulary like others.
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = [token for token in made["added_tokens"] if not token["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.post_processor = processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 1)])
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(SENTENCES * 3, trainers.UnigramTrainer(
        vocab_size=500, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False))
    return tokenizer


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(SENTENCES * 3, trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=["[UNK]", "[CLS]", "[SEP]", *SPECIAL], show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    # What its maker left in the file, and nobody who uses it wants.
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    return tokenizer


def sentence_piece(kind):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([sentence.strip() for sentence in SENTENCES] * 3), model_writer=model, model_type=kind,
        vocab_size=560, byte_fallback=True, character_coverage=0.98, normalization_rule_name="identity",
        split_digits=True, add_dummy_prefix=kind == "bpe", remove_extra_whitespaces=False, minloglevel=2,
        user_defined_symbols=["<|tool|>"])
    return model.getvalue()


def pieces_of(decode, ids):
    """SGLang's incremental detokenization (managers/detokenizer_manager.py): pieces as they come."""
    pieces, begin, read = [], 0, 0
    for end in range(1, len(ids) + 1):
        shown, text = decode(ids[begin:read]), decode(ids[begin:end])
        new = text[len(shown):]
        if new and not new.endswith("\ufffd"):
            pieces.append(new)
            begin, read = read, end
    return pieces


def write(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb" if isinstance(text, bytes) else "w", **(
            {} if isinstance(text, bytes) else {"encoding": "utf-8", "newline": ""})) as file:
        file.write(text)


def record(folder, encode, decode, texts, vocabulary, seed):
    """encode(text, add_special), decode(ids, skip_special)."""
    rows = []
    for text in texts:
        ids = encode(text, True)
        rows.append({"text": text, "ids": ids, "without_special": encode(text, False), "decoded": decode(ids, True),
                     "with_special": decode(ids, False)})
        # As answers are shown: with nothing in front, and only where they are texts.
        answer = encode(text, False)
        if "\ufffd" not in decode(answer, True):
            rows[-1]["pieces"] = pieces_of(lambda some: decode(some, True), answer)
    draw = random.Random(seed)
    garbage = [[draw.randrange(vocabulary) for _ in range(draw.randint(1, 20))] for _ in range(len(texts) // 2)]
    ids = [{"ids": ids, "decoded": decode(ids, True), "with_special": decode(ids, False)} for ids in garbage]
    lines = ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
    more = ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in ids)
    write(folder, "expected.json", f'{{"texts":[\n{lines}],\n"ids":[\n{more}]}}\n')


# Templates in the style of models that people serve, each with what another has not.
TEMPLATES = {
    # Llama 3: header tokens, trimmed contents, the first system message apart, tools as indented JSON, a date.
    "headers": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d") | length | string ~ " digits" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_of_role|>system<|end_of_role|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Functions:\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message ~ "\\nToday: " + date_string }}
{{- "<|end|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>\\n\\n'+ message['content'] | trim + '<|end|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("Only one call at a time!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_of_role|>ipython<|end_of_role|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|end|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_of_role|>assistant<|end_of_role|>\\n\\n' }}
{%- endif %}
""",
    # Qwen 3: a namespace, messages from the last to the first, thoughts cut off by split and strip, a switch.
    "thoughts": """{%- if tools %}
    {{- '<|start_of_role|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|start_of_role|>system\\n' + messages[0].content + '<|end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<response>') and message.content.endswith('</response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|start_of_role|>' + message.role + '\\n' + content + '<|end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|start_of_role|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|start_of_role|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<call>\\n{"name": "' }}
                {{- tool_call.name }}
                {{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|start_of_role|>user' }}
        {%- endif %}
        {{- '\\n<response>\\n' + content + '\\n</response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_of_role|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}
""",
    # DeepSeek: one line, defaults, namespaces of texts, not stripped; its tags without a dash.
    "oneline": "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"
               "{% set ns = namespace(is_first=false, is_tool=false, system_prompt='', is_first_sp=true) %}"
               "{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}"
               "{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}"
               "{%- else %}{% set ns.system_prompt = ns.system_prompt + '\\n\\n' + message['content'] %}{%- endif %}"
               "{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}"
               "{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<|User|>' + message['content']}}"
               "{%- endif %}{%- if message['role'] == 'assistant' and 'tool_calls' not in message %}"
               "{% set content = message['content'] %}{% if '</think>' in content %}"
               "{% set content = content.split('</think>')[-1] %}{% endif %}"
               "{{'<|Assistant|>' + content + eos_token}}{%- endif %}{%- endfor -%}"
               "{% if add_generation_prompt and not ns.is_tool %}{{'<|Assistant|>'}}{% endif %}",
    # Mistral and Gemma: roles that must take turns, a macro, break and continue, loop.previtem, filters of lists.
    "turns": """{%- macro turn(name, text='(nothing)', upper=false) -%}
[{{ (name | upper) if upper else name | capitalize }}] {{ text | replace('\\t', '    ') | indent(2) }}
{%- endmacro -%}
{{ bos_token }}
{%- if (messages | selectattr('role', 'equalto', 'system') | list | length) > 1 %}
{{ raise_exception('one system message at most') }}
{%- endif %}
{% for message in messages %}
{# Comments go. #}
    {% if message.role == 'system' %}{% continue %}{% endif %}
    {% if loop.previtem is defined and loop.previtem.role == message.role %}
{{ raise_exception('Conversation roles must alternate ' ~ loop.previtem.role ~ '/' ~ message.role) }}
    {% endif %}
{{ turn(message.role, message.content, upper=loop.first) }}
    {% if loop.index > 6 %}{% break %}{% endif %}
{% endfor %}
{{ messages | map(attribute='role') | unique | sort | join('+') }} {{ messages | length }} {{ none }} {{ true }} {{ [1, 'a', none] }} {{ {'k': 1.5, "q'": 'x"y'} }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 2 ** 3 }} {{ -7 % 3 }}
{% for key, value in extra.items() %}{{ key }}={{ value }};{% endfor %}
{{ extra | tojson }} {{ extra | tojson(indent=2, sort_keys=true) }} {{ extra | tojson(ensure_ascii=True) }} {{ extra | tojson(separators=(',', ':')) }}
""",
    # Gemma and Qwen-VL: raw blocks, which keep their new lines.
    "raw": """{{ bos_token }}{% for message in messages %}<start>{{ message.role }}{% raw %}
{% endraw %}{{ message.content }}<end>{% raw -%}
 {{ not a variable }}
{% endraw %}{% endfor %}
{% if add_generation_prompt %}{% raw %}<start>model
{% endraw %}{% endif %}""",
    # Contents of parts, as models that see have them; what an assistant said is marked for training.
    "parts": """{% for message in messages -%}
<|start_of_role|>{{ message['role'] }}<|end_of_role|>
{%- if message['content'] is string %}{{ message['content'] }}{% else %}
{%- for part in message['content'] %}{% if part['type'] == 'image' %}<image>{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}
{%- endif %}
{%- if message['role'] == 'assistant' %}{% generation %}{{ '<|end|>' }}{% endgeneration %}{% else %}<|end|>{% endif %}
{% endfor %}
{%- if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}
""",
}

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather \u2014 \"today\" <b>&",
          "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 0}},
                         "required": ["city"]}}}]
CALL = {"role": "assistant", "content": "", "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": {"city": "K\u00f6ln", "days": 2, "exact": 1e-7, "far": 1e22}}}]}
SYSTEM = {"role": "system", "content": "  You are terse.\n"}
USER = {"role": "user", "content": "  How is the weather, \"friend\"? \u4f60\u597d\t<&>  "}
ASSISTANT = {"role": "assistant", "content": "<think>\nWell \u2026\n</think>\n\nFine."}
ANSWER = {"role": "tool", "content": "{\"degrees\": -3.5}"}
EXTRA = {"a": "x/\u00e9\U0001F680\"\\\n", "Z": [1, 2.0, -0.0, 1e16, 123456789.125, True, None, [], {}], "d": {"deep": {"er": [["t"]]}}}

CHATS = [
    {"messages": [USER]},
    {"messages": [SYSTEM, USER]},
    {"messages": [SYSTEM, USER, ASSISTANT, USER]},
    {"messages": [SYSTEM, USER, ASSISTANT, USER, ASSISTANT], "add_generation_prompt": False},
    {"messages": [USER, CALL, ANSWER], "tools": TOOLS},
    {"messages": [SYSTEM, USER, CALL, ANSWER, ANSWER, ASSISTANT, USER], "tools": TOOLS},
    {"messages": [SYSTEM, USER], "template_arguments": {"enable_thinking": False, "date_string": "26 Jul 2024"}},
    {"messages": [SYSTEM, SYSTEM, USER]},
    {"messages": [USER, USER]},
    {"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": "\n"}]},
]


def record_chats(folder):
    named = {"bos_token": "<|begin|>", "eos_token": "<|end|>"}
    rows = []
    for name, template in TEMPLATES.items():
        write(folder, name + ".jinja", template)
        for chat in CHATS:
            given = {"template_arguments": {}, "add_generation_prompt": True, "tools": None, **chat}
            if name == "turns":
                given["template_arguments"] = {**given["template_arguments"], "extra": EXTRA}
            try:
                rendered, _ = render_jinja_template(
                    [given["messages"]], tools=given["tools"], chat_template=template,
                    add_generation_prompt=given["add_generation_prompt"], **{**named, **given["template_arguments"]})
                result = {"text": rendered[0]}
            except Exception as error:  # noqa: BLE001: whatever Jinja says
                result = {"refused": f"{type(error).__name__}: {error}"}
            rows.append({"template": name, **given, **result})
    lines = ",\n".join(json.dumps(row, ensure_ascii=True, separators=(",", ":")) for row in rows)
    write(folder, "expected.json", f'{{"special_tokens":{json.dumps(named)},"chats":[\n{lines}]}}\n')


def main():
    folder = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    config = json.dumps({"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>", "lstrip": False, "special": True}})
    for number, (name, made) in enumerate({
            "byte-level": lambda: byte_level(None), "byte-level-nfc": lambda: byte_level(normalizers.NFC()),
            "byte-fallback": byte_fallback, "unigram": unigram, "word-piece": word_piece}.items()):
        tokenizer = made()
        tokenizer.add_special_tokens([AddedToken("<|extra|>", normalized=False, special=True)])
        tokenizer.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=False)])
        text = tokenizer.to_str(pretty=False)
        write(os.path.join(folder, name), "tokenizer.json", text + "\n")
        write(os.path.join(folder, name), "tokenizer_config.json", config + "\n")
        plain = Tokenizer.from_str(text)
        plain.no_truncation()
        plain.no_padding()
        record(os.path.join(folder, name), lambda text, special: plain.encode(text, add_special_tokens=special).ids,
               lambda ids, skip: plain.decode(ids, skip_special_tokens=skip),
               [*random_texts(count, number), "<|extra|> x <tool>", "a <tool> b"], plain.get_vocab_size(), number)
    for number, kind in enumerate(("unigram", "bpe")):
        model = sentence_piece(kind)
        where = os.path.join(folder, "sentencepiece-" + kind)
        write(where, "tokenizer.model", model)
        write(where, "generation_config.json", json.dumps({"eos_token_id": [2, 5]}) + "\n")
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)

        def encode(text, special):
            return ([processor.bos_id()] if special else []) + processor.encode(text)

        def decode(ids, skip):
            dropped = (lambda id_: processor.is_control(id_) or processor.is_unknown(id_)) if skip else lambda id_: False
            return processor.decode_pieces([processor.id_to_piece(id_) for id_ in ids if not dropped(id_)])

        record(where, encode, decode, random_texts(count, 100 + number), processor.get_piece_size(), number)
    record_chats(os.path.join(folder, "chats"))
    print("tokenizers", tokenizers.__version__)


main()
