"""Korean labels of the pictures of positional encodings, and of the tables of the study and of table 3."""

from __future__ import annotations

import re
from collections.abc import Mapping

LABELS: Mapping[str, str] = {
    # the gallery
    "interleaved (the paper)": "교대 배치(논문)",
    "halves": "절반씩 배치",
    "learned (before training: noise)": "learned(학습 전: 잡음)",
    "integer (note the scale)": "integer(눈금에 주의)",
    "dimension": "차원",
    "position": "위치",
    "cosine of the angle": "회전각의 코사인",
    "pair of dimensions": "차원 쌍",
    "q·k of equal vectors: depends on n - m alone": "같은 벡터의 q·k: n - m에 따라서만 변한다",
    "position n of k": "k의 위치 n",
    "position m of q": "q의 위치 m",
    "encoder": "인코더",
    "decoder": "디코더",
    "T5 (before training)": "T5(학습 전)",
    "relative (before training)": "relative(학습 전)",
    "key": "키",
    "query": "쿼리",
    "d = 512: first local minimum, k = 43": "d = 512: 첫 극소점, k = 43",
    "PE(p) · PE(p + k), divided by d/2": "PE(p) · PE(p + k)를 d/2로 나눈 값",
    "|PE(p) - PE(p + k)|, divided by √d": "|PE(p) - PE(p + k)|를 √d로 나눈 값",
    "offset k": "간격 k",
    "dot product": "내적",
    "distance": "거리",
    "an embedding of variance 1": "분산이 1인 임베딩",
    "norm": "노름",
    "the paper": "논문",
    "wavelength": "파장",
    "one turn in 100 positions": "위치 100개에 한 바퀴",
    "0.1 rad in 100 positions": "위치 100개에 0.1라디안",
    "tensor2tensor: longer wavelengths than the paper's": "tensor2tensor: 논문보다 긴 파장",
    "pair i": "쌍 i",
    "positions": "위치의 수",
    "dimensions 2 and 3: a circle": "차원 2와 3: 원",
    "with dimension 4: a curve in space": "차원 4를 더하면: 공간 곡선",
    "sin, slower": "더 느린 sin",
    "a sinusoid is a bit that changes gradually": "사인파는 서서히 변하는 비트이다",
    "column": "열",
    "row": "행",
    # the study
    "copy": "복사",
    "reverse": "뒤집기",
    "sort": "정렬",
    "free length": "길이 자유",
    "length of the reference": "정답의 길이로 강제",
    "symbols": "기호의 수",
    "symbols that are right, %": "맞힌 기호, %",
    "BLEU, free length": "BLEU, 길이 자유",
    "BLEU, length of the reference": "BLEU, 참조 번역의 길이로 강제",
    "length / length of the reference": "번역문의 길이 / 참조 번역의 길이",
    "English words of the source (trained on 14 or fewer)": "원문(영어)의 단어 수(학습은 14개 이하)",
    "seconds": "초",
    "memory bytes": "메모리(바이트)",
    "with residual connections": "잔차 연결 있음",
    "without residual connections": "잔차 연결 없음",
    "position in the hidden states, linear probe": "은닉 상태에 남은 위치 정보, 선형 탐침",
    "layer (0: the embeddings)": "층(0: 임베딩)",
    # the tables
    "yes": "있음",
    "no": "없음",
    "not scaled": "스케일링 미적용",
    "scaled": "스케일링 적용",
    "additive": "가산(additive)",
    "self-attention": "셀프 어텐션",
    "restricted": "제한된 셀프 어텐션",
    "recurrent": "순환",
    "convolutional": "합성곱",
    "dilated": "팽창 합성곱",
    "positions learned": "위치 인코딩 learned",
}
"""English label, or a part of one between commas → Korean."""

PATTERNS: Mapping[str, str] = {
    r"(\d+) heads?": r"헤드 \1개",
    r"head (\d+)": r"\1번 헤드",
    r"base ([\d,]+)": r"밑 \1",
    r"bit (\d+) of the position": r"위치의 비트 \1",
    r"wave of length (\d+)": r"파장이 \1인 사인파",
    r"norm of what is added, d = (\d+)": r"더하는 값의 노름, d = \1",
    r"dimension (\d+)": r"차원 \1",
    r"dot product with (\(.*\))": r"\1과의 내적",
    r"joined (\d+)": r"\1개 연결",
    r"(\d+)-": r"\1 이상",
}
"""Pattern of a whole label, or of a part of one → Korean."""

PICTURES: Mapping[str, tuple[str, str]] = {
    "heat_maps": (
        "임베딩에 더하는 값",
        "행은 위치, 열은 차원이다. 낮은 차원의 사인파는 빨리 돌고, 높은 차원의 사인파는 한 문장 안에서 거의 "
        "변하지 않는다. 배치가 달라도 같은 종류의 파동이 순서만 바뀌어 들어 있다.",
    ),
    "products": (
        "간격에 따른 내적과 거리",
        "둘 다 간격 k에 따라서만 변하고 k의 부호와는 상관없다. 가까운 위치는 서로 비슷하다.",
    ),
    "norms": (
        "위치에 따른 노름",
        "사인파의 노름은 어느 위치에서나 √(d/2)이다. 정수는 끝없이 커져서 단어의 임베딩을 덮어 버린다.",
    ),
    "wavelengths": (
        "각 차원의 파장",
        "파장은 2π에서 10000 · 2π 가까이까지 등비수열로 늘어난다. "
        "저자들이 공개한 프로그램의 파장은 최대 3.7 % 길다.",
    ),
    "circle_and_curve": (
        "두 차원에서는 원, 세 차원에서는 곡선",
        "차원 한 쌍은 원 위의 한 점이다. 위치가 k만큼 나아가면 정해진 각만큼 회전한다.",
    ),
    "bits_and_waves": (
        "비트와 사인파",
        "위치의 비트 i는 파장이 2^(i+1)이다. 파장이 같은 사인파는 그 비트를 매끄럽게 바꾼 것이다.",
    ),
    "rotations": (
        "Rotary: 쿼리와 키의 회전",
        "쿼리와 키의 각 차원 쌍을 위치에 비례하는 각만큼 회전한다. 둘의 곱은 위치의 차이에 따라 정해진다.",
    ),
    "biases": (
        "어텐션 점수에 더하는 값",
        "ALiBi는 헤드마다 다른 기울기로 거리에 벌점을 준다. T5와 Shaw의 상대 위치는 값을 학습한다. "
        "여기에서는 어떤 거리끼리 값을 공유하는지 볼 수 있도록 학습 전의 값을 그렸다.",
    ),
    "two_dimensions": (
        "두 차원",
        "이미지에서는 차원의 절반이 행을, 나머지 절반이 열을 나타낸다. 가까운 곳일수록 내적이 크다.",
    ),
}
"""Name of a picture of the gallery → its title, and the sentences that say what to see in it."""


def translated(label: str) -> str:
    """Returns a label in Korean; names, numbers and symbols stay as they are."""
    if label in LABELS:
        return LABELS[label]
    for pattern, korean in PATTERNS.items():
        if re.fullmatch(pattern, label):
            return re.sub(pattern, korean, label)
    parts = label.split(", ")
    return label if len(parts) == 1 else ", ".join(map(translated, parts))
