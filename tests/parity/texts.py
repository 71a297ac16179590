"""Texts that tokenizers and cleaning disagree about."""

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "<bin_5>", "<bin_999>", "<bin_1000>", "<code_0>", "<code_8191>")

BLANKS = (
    " ",
    "\t",
    "\n",
    "\r\n",
    "\v",
    "\f",
    "\x1c",
    "\x1f",
    "\x85",
    "\u00a0",
    "\u1680",
    "\u2003",
    "\u2028",
    "\u2029",
    "\u3000",
)
INVISIBLE = ("\x00", "\x07", "\x7f", "\u00ad", "\u200b", "\u200d", "\u2060", "\ufeff", "\ufffd", "\U000e0001")

SCRIPTS = (
    "\u4e24\u53ea\u9e1f\u5728\u6811\u4e0a\u3002",
    "\u4e8c\u7fbd\u306e\u9ce5\u304c\u3044\u308b\u3088",
    "\uc0c8 \ub450 \ub9c8\ub9ac",
    "\u0434\u0432\u0435 \u043f\u0442\u0438\u0446\u044b",
    "\u0637\u0627\u0626\u0631\u0627\u0646 \u0639\u0644\u0649 \u0634\u062c\u0631\u0629",
    "\u05e9\u05ea\u05d9 \u05e6\u05d9\u05e4\u05d5\u05e8\u05d9\u05dd",
    "\u0926\u094b \u092a\u0915\u094d\u0937\u0940",
    "\u0e19\u0e01\u0e2a\u0e2d\u0e07\u0e15\u0e31\u0e27",
    "\u0130STANBUL \u0131\u015f\u0131k STRASSE \u1e9e \u03a3\u039f\u03a6\u039f\u03a3",
)

EMOJI = (
    "\U0001f426\U0001f426 on a branch",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466",
    "\U0001f44d\U0001f3fd thumbs \u2764\ufe0f",
    "\U0001f1e9\U0001f1ea flag",
    "keycap 1\ufe0f\u20e3",
)

SENTENCES = (
    "there are two birds.",
    "There Are TWO Birds",
    "a dog's ball isn't the children's; they'll say we've won, I'd think I'm 'S 'LL",
    'she said "yes" and \u201cno\u201d',
    "'quoted' ''twice'' \"\"",
    "braces {} and {0} and {name} and {{}} and { and }",
    "%s %d $HOME `ls` \\n \\u0041",
    "a well-known black/white cat-dog/cow",
    "--/--",
    "x- -y /z/",
    "<person> walks with <person>s and <PERSON> <per-son>",
    "...,!?*#:;~leading marks",
    "  ,.leading blanks keep the marks",
    "?!.",
    "a",
    "1",
    "2 birds 22 birds 2222222222 3.14159 1,000,000 \u00bd \u00b2 \u0663\u0664 \u2167",
    "trailing blanks   ",
    "trailing lines\n\n",
    "lines\n \nand \n",
    "two  blanks   three\t\ttabs \t mixed",
    "tab\tone, line\none",
    "caf\u00e9 cafe\u0301 \u0041\u030a\u0323 \u1100\u1161\u11a8 z\u0351\u036b\u0343",
    "\ufb01ne \uff21\uff22\uff23 \u210c\u2460",
    "pneumonoultramicroscopicsilicovolcanoconiosis",
    "a" * 300,
    "ab" * 120 + " " + "\U0001f426" * 20,
    "https://example.com/a-b/c?d=e&f=%20#g user@example.com",
    "<html><b>bold</b></html> &amp; <!-- -->",
    "<pad> in front and <pad>",
    "before </s> after",
    "before<s>after<unk>x",
    "the <mask> is blank \t <mask>glued<mask>",
    "<MASK> <PAD> <BIN_5>",
    "<bin_5> <bin_7><bin_8>  <bin_9>",
    "<bin_5x> <bin_> <bin_05> <bin_-1> <code_12",
    "<<pad> <pad>> <<s>> <s<s> <</s> </s</s> <bin_<bin_5> <bin_99<bin_999>9>",
    "<unk><unk>",
    "\u0120word \u010aline \u0100",
    "<|endoftext|> madeupword0000 madeupword0001",
)


def awkward_texts() -> list[str]:
    """Every text above, and each blank, invisible and special token in the middle of words."""
    joints = [*SPECIAL, *BLANKS, *INVISIBLE]
    inside = [f"two{joint}birds {joint} on{joint}{joint} a tree{joint}" for joint in joints]
    before = [f"{joint}two birds" for joint in joints]
    masked = [f"two birds{blank}<mask>{blank}on" for blank in BLANKS]
    return [*SENTENCES, *SCRIPTS, *EMOJI, *inside, *before, *masked]
