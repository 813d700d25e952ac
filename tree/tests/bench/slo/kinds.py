"""The three business types of the load, and the words by which a text is known to be one of them.

| type | prompt tokens | calls per second | target |
|---|---|---|---|
| credit-card tickets | 320-450 | 150 | 500 ms |
| wealth-product advice | 150-220 | 300 | 300 ms |
| loan approval | 600-800 | 50 | 1 s |

Prompts, targets and the proportion of the rates are a field report's of a bank; the rates are its peak rates times `RATE_SCALE`, which is what the
emulated fleet can answer with some tenth to spare. About half of the shortest prompt is a system prompt that all calls of a type and language
share. The words that fill the rest belong to no type.
"""

from __future__ import annotations

from dataclasses import dataclass

RATE_SCALE = 0.25
OUTPUT_TOKENS = (18, 22)
EMERGENCY_SHARE = 0.01
CHINESE_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    peak_rate: float
    """Calls per second in the field."""
    target_ms: int
    prompt_tokens: tuple[int, int]
    pools: tuple[str, ...]
    """In order of preference, for a gateway that knows of such a thing."""
    keywords: tuple[str, ...]
    system: str
    system_chinese: str
    openings: tuple[str, ...]
    openings_chinese: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Calls per second at nominal load."""
        return self.peak_rate * RATE_SCALE


KINDS = (
    Kind(
        name="credit-card",
        peak_rate=600,
        target_ms=500,
        prompt_tokens=(320, 450),
        pools=("high-batch", "low-latency"),
        keywords=("credit card", "信用卡"),
        system="You sort tickets on credit cards. Name the cause and the desk. ",
        system_chinese="你负责整理信用卡工单，请指出原因和处理部门。",
        openings=("A ticket about my credit card. ", "My credit card was charged twice. "),
        openings_chinese=("我的信用卡被重复扣款。", "信用卡账单有一处错误。"),
    ),
    Kind(
        name="wealth",
        peak_rate=1200,
        target_ms=300,
        prompt_tokens=(150, 220),
        pools=("low-latency", "high-batch"),
        keywords=("wealth product", "理财产品"),
        system="You answer questions on wealth products. Be brief. ",
        system_chinese="你回答关于理财产品的问题，请简短。",
        openings=("Which wealth product suits me? ", "How safe is this wealth product? "),
        openings_chinese=("哪一款理财产品适合我？", "这款理财产品的风险高吗？"),
    ),
    Kind(
        name="loan",
        peak_rate=200,
        target_ms=1000,
        prompt_tokens=(600, 800),
        pools=("high-batch", "low-latency"),
        keywords=("loan application", "贷款审批"),
        system="You check a loan application against the rules below. ",
        system_chinese="你按照下列规则进行贷款审批。",
        openings=(
            "This is the loan application of a customer. ",
            "The file of one loan application follows. ",
        ),
        openings_chinese=("以下是一位客户的贷款审批材料。", "请处理这份贷款审批。"),
    ),
)
NOMINAL_RATE = sum(kind.rate for kind in KINDS)
WORDS = (
    *("account", "customer", "branch", "statement", "amount", "date", "limit", "interest", "rate", "term"),
    *("payment", "reference", "product", "risk", "income", "address", "balance", "period", "document"),
    *("was", "asks", "has", "reports", "wants", "for", "the", "a", "of", "since", "about", "and", "with"),
)
CHINESE_WORDS = (
    *(
        "账户",
        "客户",
        "支行",
        "对账单",
        "金额",
        "日期",
        "额度",
        "利息",
        "利率",
        "期限",
        "付款",
        "编号",
        "风险",
        "收入",
        "地址",
    ),
    *(
        "余额",
        "文件",
        "需要",
        "询问",
        "报告",
        "希望",
        "已经",
        "关于",
        "以及",
        "因此",
        "目前",
        "上周",
        "说明",
        "确认",
        "，",
        "。",
    ),
)
