"""The ResNet image tower: bottleneck blocks, stride on the 3x3 convolution, three stages, no pooling at the end."""

from torch import Tensor, nn

EXPANSION = 4


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions, each with BatchNorm, around a shortcut."""

    def __init__(self, channels: int, planes: int, stride: int, *, project: bool) -> None:
        super().__init__()
        out = planes * EXPANSION
        self.conv1 = nn.Conv2d(channels, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.downsample: nn.Module = nn.Identity()
        if project:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(self.downsample(x) + y)


class ResNet(nn.Module):
    """Pixels FP32 [B, 3, height, width], normalised, to features FP32 [B, 1024, ceil(height/16), ceil(width/16)]."""

    def __init__(self, blocks: tuple[int, int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _stage(64, 64, blocks[0], stride=1)
        self.layer2 = _stage(256, 128, blocks[1], stride=2)
        self.layer3 = _stage(512, 256, blocks[2], stride=2)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(pixels))))
        return self.layer3(self.layer2(self.layer1(x)))


def _stage(channels: int, planes: int, blocks: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels, planes, stride, project=True)
    rest = [Bottleneck(planes * EXPANSION, planes, 1, project=False) for _ in range(blocks - 1)]
    return nn.Sequential(first, *rest)
